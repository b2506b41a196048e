//! Hardware that is not the usual, and physical changes to a node: keys in the boot menu, the disk in another board, another network card,
//! a disk of several paths, and settings for virtual machines.

use std::time::Duration;

use anyhow::{Context, Result};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::console::ESCAPE;
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::disk::Disk;
use nqrust_tests::http::Server;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::Medium;
use nqrust_tests::node::{Checks, Document, MAC, NODE_DOCUMENT};
use nqrust_tests::qemu::{Firmware, Machine, PATHS_WWN, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{
    NEXT, UPDATE_LIMIT, awaited, from_served, release, restarted, running, serve, settled, slot,
};

/// The password of the boot menu, and its hash by grub-mkpasswd-pbkdf2.
const PASSWORD: &str = "correct horse";
const HASH: &str = "grub.pbkdf2.sha512.10000.5AE15B2B2400C5DFE3276F4E2550EBBAC102CE035D49E0E3AAE872A9AE08C59B38317026AEBAC373053A15E81340A25F581304B78A4A13D5DFD7E48A3E141FC9.7EED6CF54330BDC1F4A09E7B97A88535B61944C6111D7FC8D9E49BFFCD9C8A4882AC89A58E8650895A67379CDD4B9B6D86C273B5855FC85EC821D04B822622C8";

/// The hardware address of another card than that of the install.
const OTHER: &str = "52:54:00:6e:71:7f";

/// From power on to a boot menu, and from a key to its effect: on an emulated processor GRUB on BIOS takes long for the
/// 10000 rounds of a password.
const FIRMWARE: Duration = Duration::from_secs(120);
const PROMPT_LIMIT: Duration = Duration::from_secs(180);

/// From a change of the paths to a disk to the node's knowledge of it.
const PATHS_LIMIT: Duration = Duration::from_secs(120);

/// From a wrong password to the menu.
const REFUSED: Duration = Duration::from_secs(8);

#[test]
#[ignore = "an install and four boots, beside those of the other tests"]
fn a_node_finds_its_card_on_another_board_and_its_boot_menu_asks_for_the_password() {
    scenario("hardware", |artifacts| {
        let identity = Identity::load()?;
        let mut document = Document::new("node-h").to_json(&identity);
        document["os"]["boot_password"] = HASH.into();
        let medium = Medium::shared("hardware", &document)?;
        let disk = Disk::empty_raw(artifacts.disk("node.img"), ByteSize::gib(32))?;
        let live = steps::node("install", Firmware::Bios, "").disk(&disk).cdrom(&medium.full);
        install(&live, artifacts)?;
        let mut checks = Checks::default();
        let name = name_the_card(&disk, &identity, &mut document, artifacts)?;
        another_board(&disk, &identity, &name, artifacts, &mut checks)?;
        another_card(&disk, &name, artifacts)?;
        checks.finish("a node on other hardware")
    });
}

/// Checks that the medium's menu is protected too, and that it installs without a password.
fn install(live: &Machine, artifacts: &Artifacts) -> Result<()> {
    let mut vm = live.start(artifacts)?;
    steps::expect(&mut vm, "Boot from local disk", FIRMWARE).context("the menu of the medium")?;
    shut(&mut vm).context("the menu of the medium")?;
    vm.serial.keys("\r")?;
    steps::expect(&mut vm, steps::INSTALL_COMPLETE, steps::INSTALL_LIMIT).context("installing")?;
    vm.wait_for_exit(steps::SHUTDOWN_LIMIT).context("waiting for the reboot after the install").map(drop)
}

/// Checks that editor and command line of the menu on the console ask for a password, and that the command line accepts
/// the right one.
fn shut(vm: &mut Vm) -> Result<()> {
    for key in ["e", "c"] {
        vm.serial.keys(key)?;
        vm.serial.wait_for("Enter username:", PROMPT_LIMIT).with_context(|| format!("pressing {key}"))?;
        vm.serial.keys("root\r")?;
        vm.serial.wait_for("Enter password:", PROMPT_LIMIT)?;
        vm.serial.keys("hunter2\r")?;
        vm.serial.wait_for("access denied", PROMPT_LIMIT)?;
        // The menu comes back after a delay, which grows with every wrong password.
        std::thread::sleep(REFUSED);
        vm.serial.rest(PROMPT_LIMIT);
    }
    vm.serial.keys("c")?;
    vm.serial.wait_for("Enter username:", PROMPT_LIMIT)?;
    vm.serial.keys("root\r")?;
    vm.serial.wait_for("Enter password:", PROMPT_LIMIT)?;
    vm.serial.keys(&format!("{PASSWORD}\r"))?;
    vm.serial.wait_for("grub>", PROMPT_LIMIT).context("the right password")?;
    vm.serial.keys(&ESCAPE.to_string())?;
    vm.serial.rest(Duration::from_secs(3));
    Ok(())
}

/// Boots the node past its menu; its document then names the card by its present name.
fn name_the_card(
    disk: &Disk,
    identity: &Identity,
    document: &mut serde_json::Value,
    artifacts: &Artifacts,
) -> Result<String> {
    let mut vm = steps::node("first-boot", Firmware::Bios, "").disk(disk).start(artifacts)?;
    steps::expect(&mut vm, "(slot a, on trial)", FIRMWARE).context("the menu of the node")?;
    shut(&mut vm).context("the menu of the node")?;
    vm.serial.keys("\r")?;
    let ssh = steps::log_in(&mut vm, identity, artifacts)?;
    let name = card(&ssh, MAC)?;
    document["install"]["management_interface"]["interfaces"] = serde_json::json!([{ "name": name }]);
    ssh.write_as_root(NODE_DOCUMENT, document.to_string().as_bytes())
        .context("changing the node document")?;
    ssh.run("sudo -n installer apply && sync")?;
    let record = ssh.run("sudo -n cat /oem/cards.json")?;
    anyhow::ensure!(record.contains(MAC), "the card is not remembered: {record}");
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)?;
    Ok(name)
}

/// The name of the card with this address, also in a bond.
fn card(ssh: &Ssh, address: &str) -> Result<String> {
    let find = format!(
        "for card in /sys/class/net/*; do [ -e $card/device ] || continue; \
         grep -qs {address} $card/address $card/bonding_slave/perm_hwaddr && basename $card; done"
    );
    Ok(ssh.run(&format!("{{ {find}; true; }}"))?.trim().to_owned())
}

/// Adds a device before the card, so that the card gets another name.
fn another_board(
    disk: &Disk,
    identity: &Identity,
    name: &str,
    artifacts: &Artifacts,
    checks: &mut Checks,
) -> Result<()> {
    let machine = steps::node("another-board", Firmware::Uefi, "").balloon().disk(disk);
    let (vm, ssh) = steps::boot(&machine, identity, artifacts)?;
    let now = card(&ssh, MAC)?;
    checks.that(&format!("the card has another name ({name}, {now})"), now != name && !now.is_empty());
    let status = ssh.run("sudo -n installer status")?;
    checks.that(&format!("no card is missing: {status}"), !status.contains("MISSING"));
    steps::collect_logs(&ssh, artifacts, "another-board")?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)
}

/// With a card that is neither the remembered one nor in its place, the login says so first.
fn another_card(disk: &Disk, name: &str, artifacts: &Artifacts) -> Result<()> {
    let machine =
        Machine::new("another-card", Firmware::Bios).balloon().disk(disk).isolated_network(OTHER, "");
    let mut vm = machine.start(artifacts)?;
    let console =
        steps::expect(&mut vm, " login: ", steps::BOOT_LIMIT).context("booting with another card")?;
    for wanted in
        [format!("NETWORK CARD MISSING: {name} ({MAC}) of network mgmt"), format!("{OTHER} (virtio_net")]
    {
        anyhow::ensure!(console.contains(&wanted), "no {wanted:?} above the login: {console}");
    }
    vm.kill()
}

#[test]
#[ignore = "an install and seven boots: `make soak` runs it"]
fn a_node_on_a_disk_of_two_paths_is_installed_updated_and_recovered_while_paths_come_and_go() {
    scenario("multipath", |artifacts| {
        let identity = Identity::load()?;
        let medium = Medium::shared("multipath", &on_paths(&identity))?;
        let served = artifacts.disk("www");
        serve(&release(&identity, "update-next", NEXT, &[])?, &served, "next")?;
        let server = Server::start(&served, 0)?;
        let disk = Disk::empty_raw(artifacts.disk("node.img"), ByteSize::gib(32))?;
        let alone = Disk::empty(artifacts.disk("alone.qcow2"), ByteSize::gib(1))?;
        let machine = |purpose: &str, firmware| Machine::new(purpose, firmware).network(MAC).scsi_path(&disk);
        let both = |purpose: &str| machine(purpose, Firmware::Uefi).scsi_path(&disk).scsi(&alone);
        steps::install(&both("install").cdrom(&medium.full), artifacts)?;
        let mut checks = Checks::default();

        // The first start, through the map.
        let (mut vm, ssh) = steps::boot(&both("both-paths").reboots(), &identity, artifacts)?;
        settled(&ssh)?;
        steps::collect_logs(&ssh, artifacts, "both")?;
        on_map(&ssh, 2, &mut checks)?;
        let alone = ssh.run("lsblk --noheadings --nodeps --output NAME,SIZE --bytes | grep 1073741824")?;
        let name = alone.split_whitespace().next().unwrap_or_default();
        let above = ssh.run(&format!("ls /sys/block/{name}/holders"))?;
        checks.equal("what holds the disk of one path", above.trim(), "");

        // A path fails, and comes back by another name.
        vm.qmp.execute("device_del", serde_json::json!({ "id": "path0" }))?;
        paths(&ssh, 1)?;
        checks.contains("the status", &ssh.run("sudo -n installer status")?, "ONLY ONE PATH WORKS");
        write_and_read(&ssh, "with one path", &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "one-failed")?;
        vm.add_scsi_path(&disk, 0)?;
        paths(&ssh, 2)?;
        on_map(&ssh, 2, &mut checks)?;

        // An update while one of them is gone again, and its start with the one that is left.
        vm.qmp.execute("device_del", serde_json::json!({ "id": "path1" }))?;
        paths(&ssh, 1)?;
        let apply =
            format!("sudo -n installer update apply {}", from_served(&served, server.port(), "next")?);
        let ssh = restarted(&mut vm, &ssh, &apply, &identity, artifacts)?;
        let status = settled(&ssh)?;
        steps::collect_logs(&ssh, artifacts, "updated")?;
        checks.equal("the new release runs", &slot(&status, "b"), &(NEXT.into(), "good".into()));
        checks.equal("from slot b", status["running"].as_str(), Some("b"));
        on_map(&ssh, 1, &mut checks)?;
        awaited(&ssh, UPDATE_LIMIT, "the recovery system is the new release", |told| {
            slot(told, "recovery").0 == NEXT
        })?;
        let recovery = "sudo -n installer update start recovery";
        let ssh = restarted(&mut vm, &ssh, recovery, &identity, artifacts)?;
        checks.equal("the recovery system runs", &running(&ssh)?, &"recovery".to_owned());
        let repair = ssh.attempt("sudo -n installer update repair --yes", UPDATE_LIMIT)?;
        checks.that(&format!("nothing is damaged: {}", repair.said()), repair.code == 0);
        on_map(&ssh, 1, &mut checks)?;
        steps::collect_journal(&ssh, artifacts, "recovery")?;
        let ssh = restarted(&mut vm, &ssh, "sudo -n systemctl reboot", &identity, artifacts)?;
        settled(&ssh)?;

        let ssh = restarted(&mut vm, &ssh, "sudo -n installer update rollback", &identity, artifacts)?;
        let status = settled(&ssh)?;
        checks.equal("the release before runs", status["running"].as_str(), Some("a"));
        on_map(&ssh, 1, &mut checks)?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;

        // BIOS, both paths again.
        let bios = machine("bios", Firmware::Bios).scsi_path(&disk);
        let (vm, ssh) = steps::boot(&bios, &identity, artifacts)?;
        settled(&ssh)?;
        on_map(&ssh, 2, &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "bios")?;
        drop(ssh);
        checks.finish("a disk of two paths")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// The document of a node on the disk that has several paths.
fn on_paths(identity: &Identity) -> serde_json::Value {
    let mut document = Document::new("node-p").to_json(identity);
    document["install"]["device"] = serde_json::json!({ "wwn": PATHS_WWN });
    document
}

/// Waits until the node knows so many paths to its disk.
fn paths(ssh: &Ssh, count: usize) -> Result<String> {
    Deadline::after(PATHS_LIMIT).every(MACHINE_INTERVAL).poll("the paths to the disk", || {
        let told = ssh.run("sudo -n installer status | grep '^paths'")?;
        Ok((told.matches(" up").count() == count).then_some(told))
    })
}

/// Checks that all of the node is on the map of its disk, to which so many paths lead.
fn on_map(ssh: &Ssh, count: usize, checks: &mut Checks) -> Result<()> {
    let told = paths(ssh, count)?;
    checks.contains("the paths", &told, "/dev/mapper/");
    // A map and its partitions have the WWID as their name.
    for line in ssh.run("lsblk --noheadings --list --output NAME,MOUNTPOINTS")?.lines() {
        checks.that(&format!("no path is mounted: {line}"), !line.starts_with("sd") || !line.contains('/'));
    }
    let esp = ssh.run("readlink -f /dev/disk/by-partlabel/esp")?;
    checks.that(&format!("the boot loader is on the map: {esp}"), esp.starts_with("/dev/dm-"));
    let failed = ssh.run("systemctl list-units --failed --no-legend --plain")?;
    checks.equal("units that failed", failed.trim(), "");
    Ok(())
}

/// Writes to the disk of the node, and reads its OS image.
fn write_and_read(ssh: &Ssh, when: &str, checks: &mut Checks) -> Result<()> {
    let work = "sudo -n sh -euc 'dd if=/dev/urandom of=/var/lib/nqrust/tried bs=1M count=8 conv=fsync status=none; \
                rm /var/lib/nqrust/tried; echo 3 >/proc/sys/vm/drop_caches; cat /usr/bin/* >/dev/null'";
    let ended = ssh.attempt(work, UPDATE_LIMIT)?;
    checks.that(&format!("writing and reading {when}: {}", ended.said()), ended.code == 0);
    Ok(())
}

#[test]
#[ignore = "an install and a boot: `make soak` runs it"]
fn a_node_whose_disk_gets_a_second_path_after_the_install_starts_and_says_so() {
    scenario("multipath-later", |artifacts| {
        let identity = Identity::load()?;
        let medium = Medium::shared("multipath", &on_paths(&identity))?;
        let disk = Disk::empty_raw(artifacts.disk("node.img"), ByteSize::gib(32))?;
        let machine = |purpose: &str| Machine::new(purpose, Firmware::Uefi).network(MAC).scsi_path(&disk);
        steps::install(&machine("install").cdrom(&medium.full), artifacts)?;
        let (vm, ssh) = steps::boot(&machine("both-paths").scsi_path(&disk), &identity, artifacts)?;
        steps::collect_logs(&ssh, artifacts, "both")?;
        let mut checks = Checks::default();
        let told = ssh.run("sudo -n installer status")?;
        checks.contains("the status", &told, "USED ON ONE PATH, without multipathd");
        write_and_read(&ssh, "on one path", &mut checks)?;
        drop(ssh);
        checks.finish("a second path after the install")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// Pages of 2 MiB that the document asks for at first, and afterwards.
const PAGES: [u32; 2] = [64, 32];

#[test]
#[ignore = "an install and two boots: `make soak` runs it"]
fn the_machine_is_set_up_as_the_document_says_and_anew_when_it_is_changed() {
    scenario("host-settings", |artifacts| {
        let identity = Identity::load()?;
        let mut document = Document::new("node-s").to_json(&identity);
        document["os"]["host"] = serde_json::json!({
            "huge_pages": [{ "size": "2M", "count": PAGES[0] }],
            "cpu": { "isolated": "1" },
            "nested_virtualization": true,
        });
        let medium = Medium::shared("host-settings", &document)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        // A node needs 2 GiB beside the huge pages.
        let machine = |purpose: &str| {
            Machine::new(purpose, Firmware::Uefi).memory(ByteSize::gib(3)).network(MAC).disk(&disk)
        };
        steps::install(&machine("install").cdrom(&medium.full), artifacts)?;
        let mut checks = Checks::default();

        let (mut vm, ssh) = steps::boot(&machine("node").reboots(), &identity, artifacts)?;
        let line = ssh.run("cat /proc/cmdline")?;
        for word in ["hugepagesz=2M", "hugepages=64", "isolcpus=1", "nohz_full=1", "rcu_nocbs=1"] {
            checks.contains("the arguments of the kernel", &line, word);
        }
        checks.equal("the isolated processors", ssh.run("cat /sys/devices/system/cpu/isolated")?.trim(), "1");
        checks.equal("the huge pages", huge_pages(&ssh)?, PAGES[0]);
        let told = ssh.run("sudo -n installer status")?;
        checks.contains("the status", &told, "huge_pages: 64 of 64 pages of 2M");
        let failed =
            ssh.run("systemctl list-units --state failed --plain --no-legend nqrust-devices nqrust-host")?;
        checks.equal("units that failed", failed.trim(), "");
        steps::collect_logs(&ssh, artifacts, "first")?;

        // Another number, and nothing isolated.
        document["os"]["host"] = serde_json::json!({ "huge_pages": [{ "size": "2M", "count": PAGES[1] }] });
        settled(&ssh)?;
        ssh.write_as_root(NODE_DOCUMENT, document.to_string().as_bytes())?;
        let said = ssh.run("sudo -n installer apply 2>&1")?;
        checks.contains("what apply says", &said, "From the next start on the kernel gets the arguments");
        let ssh = restarted(&mut vm, &ssh, "sudo -n systemctl reboot", &identity, artifacts)?;
        let line = ssh.run("cat /proc/cmdline")?;
        checks.contains("the arguments of the kernel afterwards", &line, "hugepages=32");
        checks.that(&format!("no processor is isolated: {line}"), !line.contains("isolcpus"));
        checks.equal("the huge pages afterwards", huge_pages(&ssh)?, PAGES[1]);
        steps::collect_logs(&ssh, artifacts, "changed")?;
        drop(ssh);
        checks.finish("the settings of the machine")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// How many huge pages of 2 MiB there are.
fn huge_pages(ssh: &Ssh) -> Result<u32> {
    Ok(ssh.run("cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")?.trim().parse()?)
}
