//! A medium that stays in the drive and is booted first: it installs once, and from then on starts the node.

use std::time::Duration;

use anyhow::{Context, Result};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::{Identity, USER};
use nqrust_tests::medium::Medium;
use nqrust_tests::node::Checks;
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::{secrets, steps};

const SIZE: ByteSize = ByteSize::gib(32);

/// Printed when the medium finds the node.
const FOUND: &str = "/dev/vda holds a finished node, node-a";

/// Printed while a key can still be pressed.
const COUNTING: &str = "The node starts from its disk in";

/// Printed when no key was pressed for a while.
const STARTING: &str = "Starting the node from its disk";

/// Printed only by an install, once.
const INSTALLING: &str = "[ ok ] Erasing the disk";

const LOGIN: &str = "node-a login: ";

/// From the end of one system to the output of the next, including the half minute in which a key can be pressed.
const ROUND: Duration = Duration::from_secs(420);

const RESTARTS: usize = 3;

/// Installs on a machine that boots the medium first, and restarts it three times.
fn installs_once(
    name: &str,
    firmware: Firmware,
    attach: fn(Machine, &Medium, &Artifacts) -> Result<Machine>,
) {
    scenario(&format!("reinstall-{name}"), |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium(&identity)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), SIZE)?;
        let machine = attach(steps::node("medium-first", firmware, ""), &medium, artifacts)?;
        let mut vm = machine.disk(&disk).reboots().start(artifacts)?;
        steps::expect(&mut vm, steps::INSTALL_COMPLETE, steps::INSTALL_LIMIT).context("installing")?;
        let mut checks = Checks::default();
        let mut written = Vec::new();
        for restart in 0..RESTARTS {
            let ssh = restarted(&mut vm, restart, &identity, artifacts, &mut checks)?;
            let found = ssh.run("sudo -n sh -c 'cat /var/lib/e2e-* /home/*/e2e-* 2>/dev/null || true'")?;
            checks.equal(
                "what was written on the node",
                found.split_whitespace().collect::<Vec<_>>(),
                written.clone(),
            );
            checks.equal(
                "the mode of the record",
                ssh.run("sudo -n stat -c '%a %U' /oem/installed.json")?,
                "600 root",
            );
            if firmware == Firmware::SecureBoot {
                checks.that("Secure Boot is on", ssh.run("sudo -n dmesg")?.contains("Secure boot enabled"));
            }
            if written.is_empty() {
                ssh.run("echo kept-in-var | sudo -n tee /var/lib/e2e-trace && echo kept-in-home > ~/e2e-trace && sync")?;
                written = vec!["kept-in-var".to_owned(), "kept-in-home".to_owned()];
            }
            if restart + 1 < RESTARTS {
                // The connection may end before the answer arrives.
                let _ = ssh.run("sudo -n systemctl reboot");
            }
        }
        checks.that("the disk is erased once", vm.serial.text().matches(INSTALLING).count() == 1);
        checks.finish("three restarts with the medium in")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Waits until the medium has booted, has reported the node, and has started it.
fn restarted(
    vm: &mut Vm,
    restart: usize,
    identity: &Identity,
    artifacts: &Artifacts,
    checks: &mut Checks,
) -> Result<Ssh> {
    let told = steps::expect(vm, FOUND, ROUND).with_context(|| format!("restart {restart}"))?;
    checks.that("nothing was erased", !told.contains(INSTALLING) || restart == 0);
    vm.serial.wait_for_screen(&[COUNTING], Duration::from_secs(60))?;
    vm.qmp.screendump(&artifacts.path(&format!("countdown-{restart}.png")))?;
    vm.serial
        .wait_for_screen(&[STARTING], Duration::from_secs(120))
        .context("waiting for the end of the countdown")?;
    steps::expect(vm, LOGIN, ROUND).with_context(|| format!("starting the node, restart {restart}"))?;
    let port = vm.ssh_port()?;
    Ssh::connect(port, USER, identity, artifacts, steps::BOOT_LIMIT)
}

#[test]
#[ignore = "an install and six boots: `make soak` runs it"]
fn a_disc_that_stays_in_the_drive_of_a_bios_installs_once_and_starts_the_node_from_then_on() {
    installs_once("bios", Firmware::Bios, |machine, medium, _| Ok(machine.cdrom(&medium.full)));
}

#[test]
#[ignore = "an install and six boots: `make soak` runs it"]
fn a_stick_that_is_forgotten_in_a_machine_with_secure_boot_installs_once_and_starts_the_node_from_then_on() {
    installs_once("secure-boot", Firmware::SecureBoot, |machine, medium, artifacts| {
        let stick = Disk::raw(medium.full.clone());
        Ok(machine.usb(&stick.overlay(artifacts.disk("stick.qcow2"), Some(ByteSize::gib(16)))?))
    });
}
