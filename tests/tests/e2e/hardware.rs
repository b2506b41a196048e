//! Hardware that is not the usual, and physical changes to a node: keys in the boot menu, the disk in another board, another network card,
//! a disk of several paths, and settings for virtual machines.

use std::time::Duration;

use anyhow::{Context, Result};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::console::ESCAPE;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::Medium;
use nqrust_tests::node::{Checks, Document, MAC, NODE_DOCUMENT};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{restarted, settled};

/// The password of the boot menu, and its hash by grub-mkpasswd-pbkdf2.
const PASSWORD: &str = "correct horse";
const HASH: &str = "grub.pbkdf2.sha512.10000.5AE15B2B2400C5DFE3276F4E2550EBBAC102CE035D49E0E3AAE872A9AE08C59B38317026AEBAC373053A15E81340A25F581304B78A4A13D5DFD7E48A3E141FC9.7EED6CF54330BDC1F4A09E7B97A88535B61944C6111D7FC8D9E49BFFCD9C8A4882AC89A58E8650895A67379CDD4B9B6D86C273B5855FC85EC821D04B822622C8";

/// The hardware address of another card than that of the install.
const OTHER: &str = "52:54:00:6e:71:7f";

/// From power on to a boot menu, and from a key to its effect: on an emulated processor GRUB on BIOS takes long for the
/// 10000 rounds of a password.
const FIRMWARE: Duration = Duration::from_secs(120);
const PROMPT_LIMIT: Duration = Duration::from_secs(180);

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
#[ignore = "a start of a medium: `make soak` runs it"]
fn an_install_on_a_disk_of_two_paths_is_refused() {
    scenario("multipath", |artifacts| {
        let identity = Identity::load()?;
        let mut document = Document::new("node-p");
        document.device = None;
        let medium = Medium::shared("multipath", &document.to_json(&identity))?;
        let disk = Disk::empty_raw(artifacts.disk("node.img"), ByteSize::gib(32))?;
        let live = steps::node("install", Firmware::Uefi, "").scsi_path(&disk).scsi_path(&disk);
        let mut vm = live.cdrom(&medium.full).start(artifacts)?;
        let (end, console) =
            vm.serial.wait_for_any(&["\n  next: ", steps::INSTALL_COMPLETE], steps::INSTALL_LIMIT)?;
        let mut checks = Checks::default();
        checks.that("the install is refused", end == 0);
        checks.contains("the reason", &console, "2 paths lead to /dev/mapper/");
        vm.kill()?;
        checks.that(
            "nothing is written",
            disk.same_bytes_as(&Disk::empty_raw(artifacts.disk("empty.img"), ByteSize::gib(32))?)?,
        );
        checks.finish("a disk of two paths")
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
