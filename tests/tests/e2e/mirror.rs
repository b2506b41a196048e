//! The system on two disks: the node starts from both, and from either alone. Also the kinds of disks that other tests
//! do not have.

use anyhow::{Context, Result};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::damage::flip;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::Medium;
use nqrust_tests::node::{self, Checks, Document};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::updates::{self, CURRENT, NEXT, UPDATE_LIMIT, restarted, settled, slot};
use nqrust_tests::{secrets, steps};
use serde_json::{Value, json};

/// The partitions of a node that are mirrored.
const MIRRORED: [&str; 6] = ["config", "data", "persistent", "recovery", "root-a", "root-b"];

fn document() -> Document {
    Document { mirror: Some("/dev/vdb".into()), ..Document::new("node-m") }
}

fn medium(identity: &Identity) -> Result<Medium> {
    Medium::shared("node-m", &document().to_json(identity))
}

/// Installs on two disks, of which the second is larger.
fn install(firmware: Firmware, identity: &Identity, artifacts: &Artifacts) -> Result<[Disk; 2]> {
    let medium = medium(identity)?;
    let first = Disk::empty(artifacts.disk("first.qcow2"), ByteSize::gib(32))?;
    let second = Disk::empty(artifacts.disk("second.qcow2"), ByteSize::gib(33))?;
    let live = steps::node("install", firmware, "").disk(&first).disk(&second).cdrom(&medium.full);
    steps::install(&live, artifacts)?;
    Ok([first, second])
}

/// Starts the node, checks it, and switches it off.
fn check(
    machine: &Machine,
    boot: &str,
    whole: bool,
    identity: &Identity,
    artifacts: &Artifacts,
) -> Result<()> {
    let mut vm = machine.start(artifacts)?;
    if !whole {
        // The initrd waits for the missing disk, which takes long under emulation; the time limit of a boot begins
        // after that.
        steps::expect(&mut vm, "starting timeout scripts", steps::BOOT_LIMIT)?;
    }
    let ssh = steps::log_in(&mut vm, identity, artifacts)?;
    let mut checks = Checks::default();
    node::check_document(&ssh, &document(), &mut checks)?;
    node::check_immutable(&ssh, &mut checks)?;
    check_arrays(&ssh, whole, &mut checks)?;
    for place in ["/", "/oem", "/var"] {
        // The OS image is read through another device, which is on the array.
        let source =
            ssh.run(&format!("lsblk --inverse --noheadings --output PATH $(findmnt -no SOURCE {place})"))?;
        checks.that(&format!("{place} is on an array: {source}"), source.contains("/dev/md"));
    }
    if whole {
        check_repair(&ssh, &mut checks)?;
        // As the kernel says it (drivers/md/raid1.c).
        let dmesg = ssh.run("sudo -n dmesg")?;
        let unclean = dmesg.lines().filter(|line| line.contains("md/raid1:") && line.contains("not clean"));
        checks.equal(
            "arrays that the last power-off left unclean",
            unclean.collect::<Vec<_>>(),
            Vec::<&str>::new(),
        );
    }
    checks.that(
        "the installer's own check of the images passes",
        ssh.succeeds("sudo -n installer images check")?,
    );
    steps::collect_logs(&ssh, artifacts, boot)?;
    let running =
        ssh.run("lsblk --inverse --noheadings --raw --output NAME $(findmnt -no SOURCE /) | grep -m 1 ^md")?;
    drop(ssh);
    let said = vm.last_words(steps::SHUTDOWN_LIMIT)?;
    // The OS image that runs is read until the end.
    let busy = said.lines().filter(|line| line.contains("Could not stop MD"));
    let other: Vec<_> = busy.filter(|line| !line.contains(&format!("/dev/{running}:"))).collect();
    checks.equal("arrays that were busy at the end beside that of the OS image", other, Vec::<&str>::new());
    checks.finish(boot)
}

/// Checks the arrays as the node reports them.
fn check_arrays(ssh: &Ssh, whole: bool, checks: &mut Checks) -> Result<()> {
    let status = ssh.run("sudo -n installer --format json status")?;
    let status: Value = serde_json::from_str(&status).context("reading the node's status")?;
    let arrays = status["arrays"].as_array().cloned().unwrap_or_default();
    let names: Vec<_> = arrays.iter().filter_map(|array| array["name"].as_str()).collect();
    checks.equal("the list of arrays", names, MIRRORED.to_vec());
    for array in &arrays {
        let members = array["members"].as_array().map(Vec::len);
        checks.equal(&format!("the members of {array}"), members, Some(if whole { 2 } else { 1 }));
        checks.equal(
            "the state of an array",
            array["state"].as_str(),
            Some(if whole { "whole" } else { "degraded" }),
        );
    }
    Ok(())
}

/// Damages the running OS image on the second disk, and lets the node repair it from the first.
fn check_repair(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let half = ssh.run(
        "lsblk --raw --noheadings --output PATH,PARTLABEL /dev/vdb | awk '$2 == \"root-a\" { print $1 }'",
    )?;
    let half = half.trim();
    flip(ssh, half, 100 * 4096 + 7)?;
    let said = ssh.attempt("sudo -n installer update repair --yes", UPDATE_LIMIT)?;
    let block = format!(
        "damage in block 100 (byte 409600) of the OS image of {CURRENT} in slot a on {half}, written anew"
    );
    checks.contains("the damaged half is repaired", &said.said(), &block);
    let again = ssh.attempt("sudo -n installer update repair --yes", UPDATE_LIMIT)?;
    checks.that("and is whole then", again.code == 0 && !again.said().contains("damage in"));
    Ok(())
}

/// Boots the node with one of its disks, which is the only disk of the machine.
fn check_alone(
    firmware: Firmware,
    disk: &Disk,
    boot: &str,
    identity: &Identity,
    artifacts: &Artifacts,
) -> Result<()> {
    // Writes go to an overlay, so that each disk is tried as the install left it.
    let alone = disk.overlay(artifacts.disk(&format!("{boot}.qcow2")), None)?;
    check(&steps::node(boot, firmware, "").disk(&alone), boot, false, identity, artifacts)
}

#[test]
#[ignore = "an install and a boot that waits for a missing disk: `make soak` runs it"]
fn a_mirrored_node_starts_on_uefi_without_its_first_disk() {
    scenario("mirror-uefi", |artifacts| {
        let identity = Identity::load()?;
        let [_, second] = install(Firmware::Uefi, &identity, artifacts)?;
        check_alone(Firmware::Uefi, &second, "second-alone", &identity, artifacts)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

#[test]
#[ignore = "five boots, three of which wait for a missing disk: `make soak` runs it"]
fn a_mirrored_node_starts_on_both_firmwares_from_both_disks_and_from_each_alone() {
    scenario("mirror", |artifacts| {
        let identity = Identity::load()?;
        let [first, second] = install(Firmware::Bios, &identity, artifacts)?;
        check_alone(Firmware::Bios, &second, "second-alone-bios", &identity, artifacts)?;
        check_alone(Firmware::Bios, &first, "first-alone-bios", &identity, artifacts)?;
        check_alone(Firmware::Uefi, &first, "first-alone-uefi", &identity, artifacts)?;
        for firmware in [Firmware::Bios, Firmware::Uefi] {
            let boot = format!("both-{firmware:?}").to_lowercase();
            let machine = steps::node(&boot, firmware, "").disk(&first).disk(&second);
            check(&machine, &boot, true, &identity, artifacts)?;
        }
        secrets::search(artifacts.directory(), &identity)
    });
}

#[test]
#[ignore = "an install, an update and two boots that wait for a missing disk: `make soak` runs it"]
fn a_mirrored_node_that_was_updated_runs_the_new_release_from_each_of_its_disks() {
    scenario("mirror-update", |artifacts| {
        let identity = Identity::load()?;
        let next = updates::release(&identity, "update-next", NEXT, &[])?;
        let [first, second] = install(Firmware::Uefi, &identity, artifacts)?;
        let machine = steps::node("update", Firmware::Uefi, "").disk(&first).disk(&second);
        let machine = machine.cdrom(&next.full).reboots();
        let (mut vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        settled(&ssh)?;
        let apply = "sudo -n installer update apply --from /dev/sr0";
        let ssh = restarted(&mut vm, &ssh, apply, &identity, artifacts)?;
        settled(&ssh)?;
        let mut checks = Checks::default();
        check_updated(&ssh, &mut checks)?;
        check_arrays(&ssh, true, &mut checks)?;
        checks.finish("both disks")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        for (name, disk) in [("first", &first), ("second", &second)] {
            let alone = disk.overlay(artifacts.disk(&format!("{name}-alone.qcow2")), None)?;
            let machine = steps::node(&format!("{name}-alone"), Firmware::Uefi, "").disk(&alone);
            let mut vm = machine.start(artifacts)?;
            steps::expect(&mut vm, "starting timeout scripts", steps::BOOT_LIMIT)?;
            let ssh = steps::log_in(&mut vm, &identity, artifacts)?;
            let mut checks = Checks::default();
            check_updated(&ssh, &mut checks)?;
            check_arrays(&ssh, false, &mut checks)?;
            checks.finish(name)?;
            drop(ssh);
            vm.power_off(steps::SHUTDOWN_LIMIT)?;
        }
        secrets::search(artifacts.directory(), &identity)
    });
}

/// The node runs the new release, which is good, and has the old one beside it.
fn check_updated(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let status = updates::status(ssh)?;
    checks.equal("the slot that runs", status["running"].as_str(), Some("b"));
    checks.equal("the new release", slot(&status, "b"), (NEXT.into(), "good".into()));
    checks.equal("the one of before", slot(&status, "a"), (CURRENT.into(), "good".into()));
    checks.equal("boot records that cannot be changed", status["unwritten"].as_array(), None);
    Ok(())
}

/// The mirror becomes whole on a new disk, although the power is cut in the middle; the node then starts from that disk alone. The disk that
/// was lost comes back to a mirror that has another one in its place.
#[test]
#[ignore = "an install and six boots, three of which wait for a missing disk: `make soak` runs it"]
fn a_disk_of_a_mirror_is_replaced_while_the_node_runs_and_the_power_is_cut() {
    scenario("mirror-replace", |artifacts| {
        let identity = Identity::load()?;
        let [first, second] = install(Firmware::Uefi, &identity, artifacts)?;
        // One of the same nominal size may be smaller.
        let third = ByteSize::gib(32) - ByteSize::mib(50);
        let third = Disk::empty(artifacts.disk("third.qcow2"), third)?;
        let machine = steps::node("replace", Firmware::Uefi, "").disk(&first).disk(&third);
        let (vm, ssh) = degraded(&machine, &identity, artifacts)?;
        let mut checks = Checks::default();
        let status = ssh.attempt("sudo -n installer health", REPLACE_LIMIT)?;
        checks.contains("the cure", &status.said(), "installer disk replace");
        let planned = ssh.attempt("sudo -n installer disk replace --dry-run --wait 600", REPLACE_LIMIT)?;
        checks.contains("the plan", &planned.said(), "gets the system anew");
        let wrong = ssh.attempt("sudo -n installer disk replace /dev/vda --wait 600", REPLACE_LIMIT)?;
        checks.equal("the exit code for the disk of the node", wrong.code, 2);
        // The power is cut once the new disk is in the first array.
        ssh.run("sudo -n systemd-run --unit replace installer disk replace --wait 600")?;
        ssh.run("until grep -q 'vdb.*vda\\|vda.*vdb' /proc/mdstat; do sleep 0.2; done")?;
        drop(ssh);
        vm.kill()?;
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        let done = ssh.attempt("sudo -n installer disk replace --until-whole --wait 600", REPLACE_LIMIT)?;
        checks.equal("the exit code of the second run", done.code, 0);
        checks.contains("the result", &done.said(), "The mirror is whole.");
        check_arrays(&ssh, true, &mut checks)?;
        let again = ssh.attempt("sudo -n installer disk replace --wait 600", REPLACE_LIMIT)?;
        checks.contains("a whole mirror", &again.said(), "nothing is to be replaced");
        let repaired = ssh.attempt("sudo -n installer update repair --wait 600", REPLACE_LIMIT)?;
        checks.equal(&format!("both disks hold the system: {}", repaired.said()), repaired.code, 0);
        checks.finish("replaced")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        for firmware in [Firmware::Uefi, Firmware::Bios] {
            let boot = format!("third-alone-{firmware:?}").to_lowercase();
            check_alone(firmware, &third, &boot, &identity, artifacts)?;
        }
        check_returned("return-later", [&third, &second], &identity, artifacts)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// The disk that was away gets what the other one has written meanwhile.
#[test]
#[ignore = "an install and two boots, one of which waits for a missing disk: `make soak` runs it"]
fn a_disk_of_a_mirror_that_was_away_gets_what_was_written_meanwhile() {
    scenario("mirror-return", |artifacts| {
        let identity = Identity::load()?;
        let [first, second] = install(Firmware::Uefi, &identity, artifacts)?;
        let alone = steps::node("first-alone", Firmware::Uefi, "").disk(&first);
        let (vm, ssh) = degraded(&alone, &identity, artifacts)?;
        ssh.run(&format!(
            "sudo -n dd if=/dev/urandom of={WHILE_AWAY} bs=1M count=64 conv=fsync status=none"
        ))?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        check_returned("return", [&first, &second], &identity, artifacts)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// The file of `/var` that a disk lacks.
const WHILE_AWAY: &str = "/var/lib/while-away";

/// Starts the node with the second disk, which has an older state, and makes the mirror whole. Both disks are there, so the start waits for
/// none: arrays start with the half that is newer, and those in which nothing was written with both.
fn check_returned(
    boot: &str,
    [newer, older]: [&Disk; 2],
    identity: &Identity,
    artifacts: &Artifacts,
) -> Result<()> {
    let machine = steps::node(boot, Firmware::Uefi, "").disk(newer).disk(older);
    let (vm, ssh) = steps::boot(&machine, identity, artifacts)?;
    let mut checks = Checks::default();
    // Where nothing was written while the disk was away, it is written now.
    ssh.run(&format!("test -e {WHILE_AWAY} || echo later | sudo -n tee {WHILE_AWAY}"))?;
    let done = ssh.attempt("sudo -n installer disk replace --until-whole --wait 600", REPLACE_LIMIT)?;
    let known = ["was in this mirror", "has a part of the system"];
    let is_known = known.iter().any(|words| done.said().contains(words));
    checks.that(&format!("a disk that was away is known: {}", done.said()), is_known);
    checks.contains("the result", &done.said(), "The mirror is whole.");
    check_arrays(&ssh, true, &mut checks)?;
    let kept = ssh.run(&format!("sudo -n sha256sum <{WHILE_AWAY}"))?;
    checks.equal("what was written while it was away, on that disk", ssh.run(OF_SECOND_DISK)?, kept);
    checks.finish(boot)?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)
}

/// The digest of a file of `/var` as the second disk has it: its half of the array is read by itself.
const OF_SECOND_DISK: &str = "sudo -n sh -c 'set -e; sync; \
    half=$(lsblk --raw --noheadings --output PATH,PARTLABEL /dev/vdb | sed -n \"s/ persistent$//p\"); \
    loop=$(losetup --read-only --direct-io=on --find --show $half); mount -t ext4 -o ro,noload $loop /mnt; \
    sha256sum </mnt/lib/while-away; umount /mnt; losetup --detach $loop'";

/// The time for copying a few GiB between emulated disks.
const REPLACE_LIMIT: std::time::Duration = std::time::Duration::from_secs(900);

/// Starts a node that lacks a disk, for which its initrd waits.
fn degraded(machine: &Machine, identity: &Identity, artifacts: &Artifacts) -> Result<(Vm, Ssh)> {
    let mut vm = machine.start(artifacts)?;
    steps::expect(&mut vm, "starting timeout scripts", steps::BOOT_LIMIT)?;
    let ssh = steps::log_in(&mut vm, identity, artifacts)?;
    Ok((vm, ssh))
}

#[test]
#[ignore = "two installs and a boot: `make soak` runs it"]
fn a_mirrored_node_is_installed_again_over_its_arrays() {
    scenario("mirror-again", |artifacts| {
        let identity = Identity::load()?;
        let [first, second] = install(Firmware::Bios, &identity, artifacts)?;
        let medium = medium(&identity)?;
        let forced = json!({ "install": { "reinstall": "once:again" } }).to_string();
        let volume = steps::configuration_volume("forced", forced.as_bytes(), artifacts)?;
        // The medium comes first, or the node would start.
        let again = steps::node("install-again", Firmware::Bios, "").cdrom(&medium.full);
        steps::install(&again.disk(&first).disk(&second).disk(&volume), artifacts)?;
        let machine = steps::node("boot-again", Firmware::Uefi, "").disk(&first).disk(&second);
        check(&machine, "boot-again", true, &identity, artifacts)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Installs on a disk that is attached in this way, and starts the node on each of `firmwares`.
fn hardware(name: &str, firmwares: &[Firmware], attach: fn(Machine, &Disk) -> Machine) {
    scenario(&format!("hardware-{name}"), |artifacts| {
        let identity = Identity::load()?;
        let document = Document { device: None, ..Document::new("node-h") };
        let medium = Medium::shared("node-h", &document.to_json(&identity))?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let first = *firmwares.first().context("a firmware")?;
        let live = attach(steps::node("install", first, ""), &disk).cdrom(&medium.full);
        steps::install(&live, artifacts)?;
        for firmware in firmwares {
            let boot = format!("{firmware:?}").to_lowercase();
            let machine = attach(steps::node(&boot, *firmware, ""), &disk);
            let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
            let mut checks = Checks::default();
            node::check_document(&ssh, &document, &mut checks)?;
            node::check_immutable(&ssh, &mut checks)?;
            checks.finish(&boot)?;
            drop(ssh);
            vm.power_off(steps::SHUTDOWN_LIMIT)?;
        }
        secrets::search(artifacts.directory(), &identity)
    });
}

const BOTH: [Firmware; 2] = [Firmware::Bios, Firmware::Uefi];

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn hardware_sata_disks_are_installed_on_and_start() {
    hardware("sata", &BOTH, |machine, disk| machine.sata(disk));
}

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn hardware_scsi_disks_are_installed_on_and_start() {
    hardware("scsi", &BOTH, |machine, disk| machine.scsi(disk));
}

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn hardware_nvme_disks_are_installed_on_and_start() {
    hardware("nvme", &BOTH, |machine, disk| machine.nvme(disk, 512));
}

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn hardware_nvme_disks_of_4096_byte_sectors_are_installed_on_and_start() {
    hardware("nvme-4096", &[Firmware::Uefi], |machine, disk| machine.nvme(disk, 4096));
}
