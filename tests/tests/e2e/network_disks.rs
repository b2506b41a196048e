//! Nodes on a disk that is reached over the network, with a card of its own for it. An iSCSI disk is named by the document, or by iPXE in
//! an iBFT, and its target is on this host; a data disk by NVMe over TCP is on another machine.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use base::size::ByteSize;
use machine::paths::DATA;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::disk::Disk;
use nqrust_tests::http::Server;
use nqrust_tests::identity::Identity;
use nqrust_tests::iscsi::{PASSWORD, PORT, TARGET, Target, USER};
use nqrust_tests::medium::Medium;
use nqrust_tests::node::{Checks, Document, MAC};
use nqrust_tests::nvme_target::{self, SUBSYSTEM, Storage};
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{restarted, settled};
use nqrust_tests::wire::Wire;

/// The hardware address of the card to the target.
const STORAGE: &str = "52:54:00:6e:71:51";
/// This host on the network of that card, and a port on which nobody answers.
const HOST: &str = "10.0.4.2";
const SILENT_PORT: u16 = PORT + 1;

const INITIATOR: &str = "iqn.2026-01.com.example:node-i";
/// How long the target is away while the node runs: longer than open-iscsi lets reads and writes wait by itself.
const AWAY: Duration = Duration::from_secs(150);
/// How long the storage system of an NVMe disk is away: longer than it takes until its connection counts as lost.
const NVME_AWAY: Duration = Duration::from_secs(60);
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

        // The storage restarts while the node writes. What the kernel says of it is on the console.
        ssh.run("sudo -n dmesg --console-level debug")?;
        // Begun before, because a new login to the node needs its disk.
        ssh.run(
            "sudo -n sh -c 'nohup sh -c \"sleep 5; dd if=/dev/urandom of=/var/tried bs=1M count=4 conv=fsync; date > /run/tried\" \
             >/dev/null 2>&1 &'",
        )?;
        drop(target);
        std::thread::sleep(AWAY);
        let target = Target::start(&disk, artifacts)?;
        nqrust_tests::deadline::Deadline::after(BACK_LIMIT).poll("what has waited for the target", || {
            Ok(ssh.attempt("test -s /run/tried", BACK_LIMIT)?.code.eq(&0).then_some(()))
        })?;
        write(&ssh, &mut checks)?;
        let failed = ssh.run("sudo -n dmesg | grep -cE 'I/O error|Remounting filesystem' || true")?;
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

#[test]
#[ignore = "two installs and four boots: `make soak` runs it"]
fn a_node_whose_data_is_reached_by_nvme_over_tcp_waits_for_its_storage_at_work_and_at_a_start() {
    scenario("nvme-tcp", |artifacts| {
        let identity = Identity::load()?;
        let mut document = Document::new("node-v").to_json(&identity);
        document["install"]["data_disk"] = serde_json::json!({ "transport": "nvme-tcp" });
        document["install"]["network_disks"] = serde_json::json!({
            "cards": [{
                "interface": { "hw_addr": STORAGE }, "method": "static", "ip": "10.0.5.7", "subnet_mask": "255.255.255.0",
            }],
            "host": nvme_target::HOST,
            "nvme": [{ "subsystem": SUBSYSTEM, "portals": [nvme_target::ADDRESS.to_string()] }],
        });
        let medium = Medium::shared("nvme-tcp", &document)?;
        let (wire, system) = (Wire::lay()?, steps::installed_disk(&identity, artifacts)?);
        let far = Disk::empty_raw(artifacts.disk("far.img"), ByteSize::gib(8))?;
        let start_storage = || Storage::start(&system, &far, &wire, &identity, artifacts);
        let mut storage = start_storage()?;

        let disk = Disk::empty(artifacts.disk("node-v.qcow2"), ByteSize::gib(24))?;
        let machine = |purpose: &str| Machine::new(purpose, Firmware::Bios).network(MAC).wire(STORAGE, &wire);
        let live = machine("install")?.cdrom(&medium.full).disk(&disk);
        let console = steps::install(&live, artifacts)?;
        let mut checks = Checks::default();
        checks.that(
            "the subsystem is connected to in the live system",
            !console.contains("no connection to the NVMe subsystem"),
        );

        let node = machine("node")?.disk(&disk);
        let (vm, ssh) = steps::boot(&node, &identity, artifacts)?;
        settled(&ssh)?;
        steps::collect_logs(&ssh, artifacts, "first")?;
        on_subsystem(&ssh, &mut checks)?;
        let write = |name: &str| {
            format!(
                "dd if=/dev/urandom of={DATA}/{name} bs=1M count=4 conv=fsync status=none && sha256sum {DATA}/{name}"
            )
        };
        let written = ssh.run(&format!("sudo -n sh -c '{}'", write("kept")))?;

        // A switch restarts while the node writes.
        storage.set_link(false)?;
        let begun = ssh.attempt(
            &format!(
                "sudo -n sh -c 'nohup sh -c \"{}; date > /run/tried\" >/dev/null 2>&1 &'",
                write("tried")
            ),
            BACK_LIMIT,
        )?;
        checks.that(&format!("writing begins: {}", begun.said()), begun.code == 0);
        std::thread::sleep(NVME_AWAY);
        let lost = format!(
            "NVMe subsystem {SUBSYSTEM} at {}:{}: CONNECTION LOST",
            nvme_target::ADDRESS,
            nvme_target::PORT
        );
        let status = ssh.attempt("sudo -n installer status", BACK_LIMIT)?;
        checks.contains("the status without the storage", &status.said(), &lost);
        checks.that("what is written waits", !ssh.succeeds("test -s /run/tried")?);
        storage.set_link(true)?;
        nqrust_tests::deadline::Deadline::after(BACK_LIMIT)
            .poll("what has waited for the storage", || {
                Ok(ssh.attempt("test -s /run/tried", BACK_LIMIT)?.code.eq(&0).then_some(()))
            })?;
        on_subsystem(&ssh, &mut checks)?;
        let failed = ssh.run("sudo -n dmesg | grep -cE 'I/O error|Remounting filesystem' || true")?;
        checks.equal("errors of reads and writes", failed.trim(), "0");
        steps::collect_journal(&ssh, artifacts, "away")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;

        // The storage has no power when the node starts.
        storage.cut()?;
        let mut vm = node.start(artifacts)?;
        let waits = format!(
            "no connection to the NVMe subsystem {SUBSYSTEM} at {}:{}",
            nvme_target::ADDRESS,
            nvme_target::PORT
        );
        steps::expect(&mut vm, &waits, steps::BOOT_LIMIT)
            .context("waiting for the word of a missing storage")?;
        let storage = start_storage()?;
        let ssh = steps::log_in(&mut vm, &identity, artifacts)?;
        settled(&ssh)?;
        on_subsystem(&ssh, &mut checks)?;
        let kept = ssh.run(&format!("sudo -n sha256sum {DATA}/kept"))?;
        checks.equal("what was written before", kept, written);
        steps::collect_journal(&ssh, artifacts, "late")?;
        drop(ssh);
        checks.finish("a node with its data on an NVMe subsystem")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        storage.cut()
    });
}

/// Checks that the data of the node is on the disk of the subsystem, which it reaches over a card that NetworkManager leaves alone.
fn on_subsystem(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let status = ssh.run("sudo -n installer status")?;
    let connected =
        format!("NVMe subsystem {SUBSYSTEM} at {}:{}: connected", nvme_target::ADDRESS, nvme_target::PORT);
    checks.contains("the status", &status, &connected);
    let inventory: serde_json::Value =
        serde_json::from_str(&ssh.run("sudo -n installer inventory")?).context("the inventory")?;
    let disks = inventory["disks"].as_array().into_iter().flatten();
    let far: Vec<_> = disks.filter(|disk| disk["remote"]["target"] == SUBSYSTEM).collect();
    checks.equal("disks of the subsystem", far.len(), 1);
    checks.that(
        "its transport is that of the document",
        far.iter().all(|disk| disk["transport"] == "nvme-tcp"),
    );
    let line = ssh.run("cat /proc/cmdline")?;
    checks.contains("the kernel command line", &line, "nqrust.network_disks=data-nvme");
    let source = ssh.run(&format!("findmnt -rno SOURCE {DATA}"))?;
    checks.that(&format!("the data is on the subsystem: {source}"), source.contains("nvme"));
    let card = ssh.run(&format!("basename $(dirname $(grep -l {STORAGE} /sys/class/net/*/address))"))?;
    let state = ssh.run(&format!("nmcli -g GENERAL.STATE device show {}", card.trim()))?;
    checks.contains("NetworkManager's state of the card", &state, "unmanaged");
    let failed = ssh.run("systemctl list-units --failed --no-legend --plain")?;
    checks.equal("units that failed", failed.trim(), "");
    Ok(())
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
    let held = ssh.run("cat /sys/class/iscsi_session/session*/recovery_tmo")?;
    checks.equal("how long reads and writes are held back, in seconds", held.trim(), "86400");
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
