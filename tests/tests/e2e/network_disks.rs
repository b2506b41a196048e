//! Nodes on a disk that is reached by iSCSI, with a card of its own for it: named by the document, or by iPXE in an iBFT. The target is on
//! this host.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use base::size::ByteSize;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::disk::Disk;
use nqrust_tests::http::Server;
use nqrust_tests::identity::Identity;
use nqrust_tests::iscsi::{PASSWORD, PORT, TARGET, Target, USER};
use nqrust_tests::medium::Medium;
use nqrust_tests::node::{Checks, Document, MAC};
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{restarted, settled};

/// The hardware address of the card to the target.
const STORAGE: &str = "52:54:00:6e:71:51";
/// This host on the network of that card, and a port on which nobody answers.
const HOST: &str = "10.0.4.2";
const SILENT_PORT: u16 = PORT + 1;

const INITIATOR: &str = "iqn.2026-01.com.example:node-i";
/// How long the target is away while the node runs.
const AWAY: Duration = Duration::from_secs(25);
/// From the return of the target until what has waited is written.
const BACK_LIMIT: Duration = Duration::from_secs(180);

/// The document of a node on the iSCSI disk, whose management network has the other card.
fn on_iscsi(identity: &Identity) -> serde_json::Value {
    let mut document = Document { device: None, ..Document::new("node-i") }.to_json(identity);
    document["install"]["device"] = serde_json::json!({ "transport": "iscsi" });
    document["install"]["management_interface"] =
        serde_json::json!({ "interfaces": [{ "hw_addr": MAC }], "method": "dhcp" });
    document
}

/// What iPXE does: it logs in, and starts from the disk or leaves it to the next device.
fn script(www: &std::path::Path, boot: &str) -> Result<Server> {
    let text = format!(
        "#!ipxe\nset initiator-iqn {INITIATOR}\nset username {USER}\nset password {PASSWORD}\n{}\n",
        boot.replace("DISK", &format!("iscsi:{HOST}::{PORT}:1:{TARGET}"))
    );
    fs::create_dir_all(www)?;
    fs::write(www.join("boot.ipxe"), text)?;
    Server::start(www, 0)
}

fn url(server: &Server) -> String {
    format!("http://{HOST}:{}/boot.ipxe", server.port())
}

#[test]
#[ignore = "an install and three boots: `make soak` runs it"]
fn a_node_on_an_iscsi_disk_of_its_document_starts_on_bios_and_uefi_and_waits_for_a_target_that_is_away() {
    scenario("iscsi", |artifacts| {
        let identity = Identity::load()?;
        let mut document = on_iscsi(&identity);
        let portals = [PORT, SILENT_PORT].map(|port| format!("{HOST}:{port}"));
        document["install"]["network_disks"] = serde_json::json!({
            "initiator": INITIATOR,
            "cards": [{ "interface": { "hw_addr": STORAGE } }],
            "iscsi": [{ "target": TARGET, "portals": portals, "chap": { "user": USER, "password": PASSWORD } }],
        });
        let medium = Medium::shared("iscsi", &document)?;
        let disk = Disk::empty_raw(artifacts.disk("node.img"), ByteSize::gib(32))?;
        let target = Target::start(&disk, artifacts)?;
        let live = Machine::new("install", Firmware::Bios).network(MAC).storage_network(STORAGE, None);
        let console = steps::install(&live.cdrom(&medium.full), artifacts)?;
        let mut checks = Checks::default();
        let silent =
            format!("no login to the iSCSI target {TARGET} at {HOST}:{SILENT_PORT}: it does not answer");
        checks.contains("the install", &console, &silent);

        let server = script(&artifacts.disk("www"), "sanboot DISK")?;
        let machine = |purpose: &str, firmware| {
            Machine::new(purpose, firmware)
                .network(MAC)
                .storage_network(STORAGE, Some(&url(&server)))
                .reboots()
        };
        let mut vm = machine("bios", Firmware::Bios).start(artifacts)?;
        // The second way is told on the console of a start, and does not hold it up for ever.
        let console =
            steps::expect(&mut vm, " login: ", steps::BOOT_LIMIT).context("booting from the target")?;
        checks.contains("the console of a start", &console, &silent);
        let ssh = Ssh::connect(
            vm.ssh_port()?,
            nqrust_tests::identity::USER,
            &identity,
            artifacts,
            steps::BOOT_LIMIT,
        )?;
        settled(&ssh)?;
        steps::collect_logs(&ssh, artifacts, "bios")?;
        on_target(&ssh, &mut checks)?;
        checks.contains("the status", &ssh.run("sudo -n installer status")?, "NOT LOGGED IN");
        write(&ssh, &mut checks)?;

        // The storage restarts while the node writes.
        drop(target);
        let begun = ssh.attempt(
            "sudo -n sh -c 'dd if=/dev/urandom of=/var/tried bs=1M count=4 status=none; nohup sh -c \"sync /var/tried; date > /run/tried\" >/dev/null 2>&1 &'",
            BACK_LIMIT,
        )?;
        checks.that(&format!("writing begins: {}", begun.said()), begun.code == 0);
        std::thread::sleep(AWAY);
        let target = Target::start(&disk, artifacts)?;
        nqrust_tests::deadline::Deadline::after(BACK_LIMIT).poll("what has waited for the target", || {
            Ok(ssh.attempt("test -s /run/tried", BACK_LIMIT)?.code.eq(&0).then_some(()))
        })?;
        write(&ssh, &mut checks)?;
        let failed = ssh.run("sudo -n dmesg | grep -ciE 'I/O error|remount' || true")?;
        checks.equal("errors of reads and writes", failed.trim(), "0");
        let ssh = restarted(&mut vm, &ssh, "sudo -n systemctl reboot", &identity, artifacts)?;
        on_target(&ssh, &mut checks)?;
        steps::collect_journal(&ssh, artifacts, "restarted")?;
        let before = ssh.run("sudo -n journalctl --boot=-1 --no-pager | tail -60")?;
        artifacts.append("shutdown.txt", &before)?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;

        let (vm, ssh) = steps::boot(&machine("uefi", Firmware::Uefi), &identity, artifacts)?;
        settled(&ssh)?;
        on_target(&ssh, &mut checks)?;
        steps::collect_journal(&ssh, artifacts, "uefi")?;
        drop(ssh);
        checks.finish("a node on an iSCSI disk")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        drop(target);
        Ok(())
    });
}

#[test]
#[ignore = "an install and a boot: `make soak` runs it"]
fn a_machine_whose_ipxe_names_an_iscsi_disk_is_installed_on_it_and_starts_from_it_without_a_word_in_the_document()
 {
    scenario("ibft", |artifacts| {
        let identity = Identity::load()?;
        let medium = Medium::shared("ibft", &on_iscsi(&identity))?;
        let disk = Disk::empty_raw(artifacts.disk("node.img"), ByteSize::gib(32))?;
        let _target = Target::start(&disk, artifacts)?;
        let hook = script(&artifacts.disk("hook"), "set keep-san 1\nsanhook --drive 0x81 DISK\nexit")?;
        let live =
            Machine::new("install", Firmware::Bios).storage_network(STORAGE, Some(&url(&hook))).network(MAC);
        let console = steps::install(&live.cdrom(&medium.full), artifacts)?;
        let mut checks = Checks::default();
        checks
            .that("the firmware's target is logged in to", !console.contains("no login to the iSCSI target"));

        let boot = script(&artifacts.disk("www"), "sanboot DISK")?;
        let machine =
            Machine::new("bios", Firmware::Bios).network(MAC).storage_network(STORAGE, Some(&url(&boot)));
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        settled(&ssh)?;
        steps::collect_logs(&ssh, artifacts, "bios")?;
        on_target(&ssh, &mut checks)?;
        drop(ssh);
        checks.finish("a node on the iSCSI disk of its firmware")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// Checks that the node is on the target's disk, reaches it over a card that NetworkManager leaves alone, and shows its password to nobody.
fn on_target(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let status = ssh.run("sudo -n installer status")?;
    checks.contains("the status", &status, &format!("iSCSI target {TARGET} at {HOST}:{PORT}: logged in"));
    let inventory = ssh.run("sudo -n installer inventory")?;
    checks.contains("the inventory", &inventory, &format!(r#""target": "{TARGET}""#));
    let line = ssh.run("cat /proc/cmdline")?;
    checks.contains("the kernel command line", &line, "nqrust.network_disks=system");
    checks.that("it has no password", !line.contains(PASSWORD));
    // A pipe would never end.
    let search = format!("find /etc /run /oem -type f -exec grep -lsF {PASSWORD} {{}} + 2>/dev/null || true");
    let readable = ssh.run(&search)?;
    checks.equal("files with the password that everyone reads", readable.trim(), "");
    let card = ssh.run(&format!("basename $(dirname $(grep -l {STORAGE} /sys/class/net/*/address))"))?;
    let state = ssh.run(&format!("nmcli -g GENERAL.STATE device show {}", card.trim()))?;
    checks.contains("NetworkManager's state of the card", &state, "unmanaged");
    let address = ssh.run(&format!("ip -4 -o address show dev {}", card.trim()))?;
    checks.contains("the address of the card", &address, "10.0.4.");
    let failed = ssh.run("systemctl list-units --failed --no-legend --plain")?;
    checks.equal("units that failed", failed.trim(), "");
    let running = ssh.run("systemctl is-active iscsid.service systemd-networkd.service || true")?;
    checks.equal("iscsid and networkd", running.trim(), "active\nactive");
    Ok(())
}

/// Writes to the disk of the node, and reads its OS image.
fn write(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let work = "sudo -n sh -euc 'dd if=/dev/urandom of=/var/lib/nqrust/tried bs=1M count=4 conv=fsync status=none; \
         rm /var/lib/nqrust/tried; echo 3 >/proc/sys/vm/drop_caches; cat /usr/bin/* >/dev/null'";
    let ended = ssh.attempt(work, BACK_LIMIT)?;
    checks.that(&format!("writing and reading: {}", ended.said()), ended.code == 0);
    Ok(())
}
