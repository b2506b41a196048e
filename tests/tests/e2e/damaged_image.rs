//! The OS image is checked at every read: a damaged block of a node is repaired, a slot with another manifest does not start, and a live
//! system tells what is damaged on its medium, at its start and on its pages.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::size::ByteSize;
use model::release::Purpose;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::console::{ESCAPE, SCREEN_LIMIT, screen};
use nqrust_tests::damage::{flip, invert, place_of, place_on};
use nqrust_tests::deadline::Deadline;
use nqrust_tests::disk::Disk;
use nqrust_tests::http::Server;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::{Checks, MAC};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{
    CURRENT, NEXT, UPDATE_LIMIT, awaited, from_served, release, restarted, restarted_where, running, serve,
    settled, slot, status,
};

use crate::questions::open_help_access;

/// Of a file that nothing reads, so that no memory has it.
const SENTENCE: &str = "The purpose of this License is to make a manual, textbook, or other";
/// The key that signs the media of tests.
const DEVELOPMENT_KEY: &str = "4852130EAC054828";
const ROOT_A: &str = "/dev/disk/by-partlabel/root-a";
const ROOT_B: &str = "/dev/disk/by-partlabel/root-b";
const RECOVERY: &str = "/dev/disk/by-partlabel/recovery";
/// Of a machine that is asked and never installed.
const DISK_SIZE: ByteSize = ByteSize::gib(32);
const FILES: &str = "/usr/share/common-licenses/GFDL-1.*";

#[test]
fn a_node_repairs_a_damaged_block_of_its_os_image() {
    scenario("damaged-block", |artifacts| {
        let identity = Identity::load()?;
        let (mut vm, ssh) = start(&identity, artifacts)?;
        let mut checks = Checks::default();
        repair_from_recovery(&ssh, &mut checks)?;
        vm.qmp.screendump(&artifacts.path("repaired.png"))?;
        steps::collect_journal(&ssh, artifacts, "repaired")?;
        checks.finish("a damaged block")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

#[test]
#[ignore = "four starts, two of which fail: `make soak` runs it"]
fn a_node_whose_image_stays_damaged_goes_on_and_one_with_another_manifest_does_not_start() {
    scenario("damaged-image", |artifacts| {
        let identity = Identity::load()?;
        let (mut vm, ssh) = start(&identity, artifacts)?;
        let mut checks = Checks::default();
        let at = repair_from_recovery(&ssh, &mut checks)?;
        // One that is wrong in the recovery system too: no other slot is good, so the node goes on.
        flip(&ssh, RECOVERY, at)?;
        flip(&ssh, ROOT_A, at)?;
        let read = ssh.attempt(&format!("cat {FILES} >/dev/null"), UPDATE_LIMIT)?;
        checks.that("no wrong byte is read", read.code != 0);
        // The next look comes minutes after the first.
        await_journal(&ssh, "not repaired")?;
        checks.contains("the node tells it", &ssh.run("sudo -n installer status")?, "not repaired");
        checks.equal("it runs", &running(&ssh)?, &"a".to_owned());
        steps::collect_journal(&ssh, artifacts, "damaged")?;

        // With the recovery system as it was, it is repaired when a person asks.
        flip(&ssh, RECOVERY, at)?;
        let repair = ssh.attempt("sudo -n installer update repair --yes", UPDATE_LIMIT)?;
        checks.that(&format!("it is repaired: {}", repair.said()), repair.code == 0);
        let read = ssh.attempt(&format!("cat {FILES} >/dev/null"), UPDATE_LIMIT)?;
        checks.equal("the file is right again", &read.code, &0);

        // A wrong byte in the installer, which every start needs: the initrd repairs it, and the next start succeeds.
        let at = place_of(&ssh, ROOT_A, "untrusted comment: ")?;
        flip(&ssh, ROOT_A, at)?;
        let (tools, again) = ((&identity, artifacts), ("the node", UPDATE_LIMIT));
        let ssh = restarted_where(&mut vm, &ssh, "sudo -n systemctl reboot", tools, again, |ssh| {
            Ok(running(ssh)? == "a")
        })?;
        let console = vm.serial.text();
        checks.contains(
            "the initrd said what it did",
            &console,
            "The OS image was damaged, and is repaired.",
        );
        checks.contains("and which block", &console, &format!("damage in block {}", at / 4096));

        // A signature that does not belong to the manifest.
        let id = format!("signed with the key {DEVELOPMENT_KEY}");
        let at = place_of(&ssh, ROOT_A, &id)? + id.len() as u64 + 40;
        flip(&ssh, ROOT_A, at)?;
        let recovery = ("the recovery system", UPDATE_LIMIT);
        let ssh = restarted_where(&mut vm, &ssh, "sudo -n systemctl reboot", tools, recovery, |ssh| {
            Ok(running(ssh)? == "recovery")
        })?;
        let told = status(&ssh)?;
        checks.equal("the slot is bad", &slot(&told, "a").1, &"bad".to_owned());
        checks.equal("for this reason", told["why"].as_str(), Some("image"));
        vm.qmp.screendump(&artifacts.path("recovery.png"))?;
        let console = vm.serial.text();
        checks.contains("the console said why", &console, "does not belong to this manifest");
        let damage = ssh.run("sudo -n dmsetup status nqrust-root")?;
        checks.that(
            &format!("the recovery system runs with its damage: {damage}"),
            damage.contains(" verity "),
        );
        steps::collect_journal(&ssh, artifacts, "recovery")?;
        checks.finish("a damaged OS image")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

#[test]
#[ignore = "an update and its restarts: `make soak` runs it"]
fn a_damaged_block_on_a_trial_takes_the_node_back_to_the_release_before() {
    scenario("damaged-trial", |artifacts| {
        let identity = Identity::load()?;
        let next = release(&identity, "update-next", NEXT, &[])?;
        let served = artifacts.disk("www");
        serve(&next, &served, "next")?;
        let server = Server::start(&served, 0)?;
        let (mut vm, ssh) = start(&identity, artifacts)?;
        let mut checks = Checks::default();

        // Written and read back, then damaged in a file that every start reads: the program that judges boots.
        ssh.run(&format!("sudo -n installer update stage {}", from_served(&served, server.port(), "next")?))?;
        let told = status(&ssh)?;
        checks.equal("it is staged", told["state"].as_str(), Some("staged"));
        let at = place_of(&ssh, ROOT_B, "untrusted comment: ")?;
        flip(&ssh, ROOT_B, at)?;
        let command = "sudo -n installer update apply";
        let ssh = restarted(&mut vm, &ssh, command, &identity, artifacts)?;
        let told = awaited(&ssh, UPDATE_LIMIT, "the verdict on the damaged release", |told| {
            told["state"] == "rolled-back"
        })?;
        checks.equal("the release before runs", &slot(&told, "a"), &(CURRENT.into(), "good".into()));
        checks.equal("in its slot", told["running"].as_str(), Some("a"));
        checks.equal("the damaged slot is bad", &slot(&told, "b").1, &"bad".to_owned());
        let reason = told["reason"].as_str().unwrap_or_default();
        checks.that(&format!("there is a reason: {reason}"), !reason.is_empty());
        checks.contains("the node tells it", &ssh.run("sudo -n installer status")?, reason);
        // In the words of dm-verity.
        checks.contains("the kernel met the block", &vm.serial.text(), "is corrupted");
        steps::collect_journal(&ssh, artifacts, "trial")?;
        checks.finish("a damaged block on a trial")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// How far apart the wrong bytes of a damaged medium are: every larger file has some.
const SCRATCHES: usize = 256 << 10;

#[test]
#[ignore = "a start of a live system: `make soak` runs it"]
fn a_live_system_from_a_damaged_medium_stops_and_says_what_is_damaged() {
    scenario("damaged-live", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium(&identity)?;
        let iso = artifacts.disk("damaged.iso");
        fs::copy(&medium.full, &iso)?;
        let release = medium.release()?;
        let image = release.payload(Purpose::Rootfs).context("a medium has an OS image")?;
        let begin = place_on(&iso, image)?;
        // Its first block is the superblock.
        for at in (4096..image.size).step_by(SCRATCHES) {
            invert(&iso, begin + at)?;
        }
        let mut vm = steps::node("damaged-live", Firmware::Uefi, "").cdrom(&iso).start(artifacts)?;
        let console = vm.serial.wait_for("It stops in 60 seconds.", steps::INSTALL_LIMIT)?;
        let mut checks = Checks::default();
        for words in [
            "THIS MACHINE CANNOT START",
            "damage in blocks 1, 65, 129, 193 and ",
            &format!("of the OS image of {} on the medium", release.version),
            "Write the medium again, or take another one.",
        ] {
            checks.contains("the console", &console, words);
        }
        vm.qmp.screendump(&artifacts.path("damaged.png"))?;
        vm.kill()?;
        checks.finish("a live system from a damaged medium")
    });
}

#[test]
#[ignore = "a start of a live system: `make soak` runs it"]
fn the_questions_of_a_live_system_say_that_its_medium_was_found_damaged() {
    scenario("damaged-questions", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_without_configuration(&identity)?;
        let iso = artifacts.disk("damaged.iso");
        fs::copy(&medium.full, &iso)?;
        let release = medium.release()?;
        let image = release.payload(Purpose::Rootfs).context("a medium has an OS image")?;
        let at = place_on(&iso, image)? + image.size / 2;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), DISK_SIZE)?;
        let mut vm =
            steps::node("damaged-questions", Firmware::Uefi, "").disk(&disk).cdrom(&iso).start(artifacts)?;
        screen(&mut vm, &["what this machine becomes"], steps::INSTALL_LIMIT, artifacts)?;
        let mut checks = Checks::default();
        checks.that("nothing is damaged yet", !vm.serial.screen().contains("DAMAGED"));
        let password = open_help_access(&mut vm, artifacts)?;
        vm.serial.keys(&ESCAPE.to_string())?;
        screen(&mut vm, &["what this machine becomes"], SCREEN_LIMIT, artifacts)?;

        // The medium becomes bad while the machine runs from it.
        invert(&iso, at)?;
        let read = "echo 3 >/proc/sys/vm/drop_caches; cat /dev/mapper/nqrust-root >/dev/null";
        let read = Ssh::by_password(vm.ssh_port()?, "root", &password, read)?;
        checks.that(&format!("no wrong byte is read: {}", read.said()), read.code != 0);
        let notice = "A part of the OS image on this medium is damaged";
        screen(&mut vm, &[notice], SCREEN_LIMIT, artifacts)?;
        checks.contains("the first page", &vm.serial.screen(), "DAMAGED");
        vm.qmp.screendump(&artifacts.path("damaged-first.png"))?;
        vm.serial.keys("\r")?;
        screen(&mut vm, &["Install: disks"], SCREEN_LIMIT, artifacts)?;
        checks.contains("the page of the disks", &vm.serial.screen(), "DAMAGED");
        checks.contains("the page of the disks", &vm.serial.screen(), notice);
        vm.qmp.screendump(&artifacts.path("damaged-disks.png"))?;
        let port = vm.ssh_port()?;
        let block = format!("damage in block {}", image.size / 2 / 4096);
        // The whole image is read once more before.
        Deadline::after(UPDATE_LIMIT).every(Duration::from_secs(5)).poll(
            &format!("{block:?} in the journal"),
            || {
                let journal = "journalctl --no-pager --output cat --unit nqrust-image";
                let journal = Ssh::by_password(port, "root", &password, journal)?;
                Ok(journal.said().contains(&block).then_some(()))
            },
        )?;
        vm.kill()?;
        checks.finish("the questions of a damaged live system")
    });
}

/// The node that is installed once for all tests, once its slot is known to be good.
fn start(identity: &Identity, artifacts: &Artifacts) -> Result<(Vm, Ssh)> {
    let disk = steps::installed_disk(identity, artifacts)?;
    let machine = Machine::new("node", Firmware::Bios).network(MAC).disk(&disk).reboots();
    let (vm, ssh) = steps::boot(&machine, identity, artifacts)?;
    let status = settled(&ssh)?;
    ensure!(slot(&status, "a").1 == "good", "slot a is not good: {status}");
    Ok((vm, ssh))
}

/// Changes a byte of the running image that the recovery system has right; returns its place.
fn repair_from_recovery(ssh: &Ssh, checks: &mut Checks) -> Result<u64> {
    let root = ssh.run("findmnt --noheadings --output SOURCE /")?;
    checks.equal("what is mounted", root.trim(), "/dev/mapper/nqrust-root");
    let state = ssh.run("sudo -n dmsetup status nqrust-root")?;
    checks.that(&format!("nothing is damaged: {state}"), state.trim().ends_with(" verity V"));

    // A wrong byte, which the recovery system has right.
    let at = place_of(ssh, ROOT_A, SENTENCE)?;
    flip(ssh, ROOT_A, at)?;
    let first = ssh.attempt(&format!("cat {FILES} >/dev/null"), UPDATE_LIMIT)?;
    checks.that(&format!("no wrong byte is read: {}", first.stderr), first.code != 0);
    await_journal(ssh, "written anew")?;
    let read = ssh.attempt(&format!("cat {FILES} >/dev/null"), UPDATE_LIMIT)?;
    checks.equal("the file is right again", &read.code, &0);
    let told = ssh.run("sudo -n installer status")?;
    let block = format!("damage in block {} (byte {})", at / 4096, at / 4096 * 4096);
    checks.contains("the node tells what was damaged", &told, &block);
    checks.contains("and that it was read", &told, "nothing is damaged");
    Ok(at)
}

fn await_journal(ssh: &Ssh, text: &str) -> Result<()> {
    let wanted = format!("{text:?} in the journal");
    Deadline::after(UPDATE_LIMIT).every(Duration::from_secs(5)).poll(&wanted, || {
        let said = ssh.run("sudo -n journalctl --no-pager --output cat --unit nqrust-image")?;
        Ok(said.contains(text).then_some(()))
    })
}
