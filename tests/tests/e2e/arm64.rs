//! Media for 64-bit Arm, built on this host: an install from the ISO and over the network, the node, its update and its reset.

use std::fs;

use anyhow::Result;
use base::files;
use base::size::ByteSize;
use model::architecture::Architecture;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document, MAC};
use nqrust_tests::paths;
use nqrust_tests::programs;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::secrets;
use nqrust_tests::segment::Segment;
use nqrust_tests::serve::Server;
use nqrust_tests::steps;
use nqrust_tests::updates::{
    self, CURRENT, NEXT, UPDATE_LIMIT, awaited, restarted, restarted_where, set_version, settled, slot,
};
use serde_json::Value;

#[test]
#[ignore = "a base system is put together under emulation: half an hour"]
fn a_medium_for_arm64_installs_with_secure_boot_and_its_node_starts_and_is_no_medium_for_x86() {
    scenario("arm64", |artifacts| {
        let identity = Identity::load()?;
        let document = Document::new("node-arm");
        let medium = built(artifacts, Some(&document.to_json(&identity)), CURRENT)?;
        let release = medium.release()?;
        let mut checks = Checks::default();
        checks.equal("the architecture of the release", release.architecture, Architecture::Arm64);
        let mut verify = programs::iso_builder()?;
        verify.arg("verify").arg(&medium.full);
        programs::run(&mut verify, steps::COMMAND_LIMIT)?.success("iso-builder verify")?;
        refused_on_x86(&medium, &mut checks)?;

        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = Machine::new("install", Firmware::SecureBoot).arm64().network(MAC);
        let console = steps::install(&live.disk(&disk).cdrom(&medium.full), artifacts)?;
        checks.that("the live system runs with Secure Boot", console.contains("Secure boot enabled"));

        let machine = steps::node("first-boot", Firmware::SecureBoot, "").arm64().disk(&disk);
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        checks.equal("the machine", ssh.run("uname -m")?, "aarch64");
        checks.that("Secure Boot is on", ssh.run("sudo -n dmesg")?.contains("Secure boot enabled"));
        let consoles = ssh.run("cat /sys/class/tty/console/active")?;
        checks.that(&format!("the serial line is a console: {consoles}"), consoles.contains("ttyAMA0"));
        node::check_document(&ssh, &document, &mut checks)?;
        node::check_immutable(&ssh, &mut checks)?;
        node::check_images(&ssh, &release, "management", &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "first-boot")?;
        checks.finish("the first boot")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Builds the media of `version`, which share a cache; the file of the ISO is the artifact's own.
fn built(artifacts: &Artifacts, config: Option<&Value>, version: &str) -> Result<Medium> {
    let built = Medium::built_with(&paths::installer_arm64()?, "arm64", |directory| {
        let definition = medium::stage_arm64(directory, config)?;
        set_version(&definition, version, |_| Ok(()))?;
        Ok(definition)
    })?;
    let full = artifacts.disk(&format!("medium-{version}.iso"));
    fs::copy(&built.full, &full)?;
    Ok(Medium { full, net_install: None })
}

/// The node takes the release in its drive and goes back; then its recovery system makes it new.
fn updated_and_reset(machine: &Machine, identity: &Identity, artifacts: &Artifacts) -> Result<()> {
    let (mut vm, ssh) = steps::boot(machine, identity, artifacts)?;
    settled(&ssh)?;
    let apply = "sudo -n installer update apply --from /dev/sr0";
    let ssh = restarted(&mut vm, &ssh, apply, identity, artifacts)?;
    let status = settled(&ssh)?;
    let mut checks = Checks::default();
    checks.equal("the slot that runs", status["running"].as_str(), Some("b"));
    checks.equal("the new release", slot(&status, "b"), (NEXT.into(), "good".into()));
    checks.equal("the one of before", slot(&status, "a"), (CURRENT.into(), "good".into()));
    awaited(&ssh, UPDATE_LIMIT, "the recovery system is the new release", |told| {
        slot(told, "recovery").0 == NEXT
    })?;
    let back = "sudo -n installer update rollback";
    let ssh = restarted(&mut vm, &ssh, back, identity, artifacts)?;
    checks.equal("the slot after the way back", settled(&ssh)?["running"].as_str(), Some("a"));
    ssh.run("sudo -n touch /var/lib/before-the-reset")?;
    let reset = "sudo -n installer update reset --level state --yes";
    let wanted = ("the node after its reset", UPDATE_LIMIT * 2);
    let ssh = restarted_where(&mut vm, &ssh, reset, (identity, artifacts), wanted, |ssh| {
        Ok(["a", "b"].contains(&updates::running(ssh)?.as_str()))
    })?;
    checks.that("/var is new", !ssh.succeeds("sudo -n test -e /var/lib/before-the-reset")?);
    checks.equal("the host name stays", ssh.run("hostname")?, "node-arm");
    steps::collect_logs(&ssh, artifacts, "reset")?;
    checks.finish("update and reset")?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)
}

#[test]
#[ignore = "a base system is put together under emulation: half an hour"]
fn a_node_for_arm64_takes_a_release_goes_back_and_is_made_new_by_its_recovery_system() {
    scenario("arm64-update", |artifacts| {
        let identity = Identity::load()?;
        let config = Document::new("node-arm").to_json(&identity);
        let next = built(artifacts, Some(&config), NEXT)?;
        let medium = built(artifacts, Some(&config), CURRENT)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = Machine::new("install", Firmware::SecureBoot).arm64().network(MAC);
        steps::install(&live.disk(&disk).cdrom(&medium.full), artifacts)?;
        let machine = steps::node("update", Firmware::SecureBoot, "").arm64().disk(&disk);
        updated_and_reset(&machine.cdrom(&next.full).reboots(), &identity, artifacts)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

#[test]
#[ignore = "a base system is put together under emulation: half an hour"]
fn a_machine_for_arm64_installs_from_the_network_and_then_starts_from_its_disk() {
    scenario("arm64-network", |artifacts| {
        let identity = Identity::load()?;
        let medium = built(artifacts, None, CURRENT)?;
        let (segment, private) = (Segment::lay()?, tempfile::tempdir()?);
        let nodes = private.path().join("nodes");
        let file = nodes.join(format!("mac-{}.yaml", MAC.replace(':', "-")));
        let document = Document::new("node-arm").to_json(&identity).to_string();
        files::write_atomically(&file, document.as_bytes(), 0o600)?;
        let (state, log) = (private.path().join("state"), artifacts.path("server.log"));
        let server = Server::on_segment(&segment, &medium.full, &nodes, &state, &log)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let machine =
            |purpose| Machine::new(purpose, Firmware::Uefi).arm64().segment(MAC, &segment).disk(&disk);
        steps::install(&machine("install"), artifacts)?;
        let mut vm = machine("first-boot").start(artifacts)?;
        server.wait_for("boots from disk: it", steps::BOOT_LIMIT)?;
        steps::expect(&mut vm, " login: ", steps::BOOT_LIMIT)?;
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// The installer of another architecture says for which one the medium is, before it plans anything.
fn refused_on_x86(medium: &Medium, checks: &mut Checks) -> Result<()> {
    let mut plan = std::process::Command::new(paths::installer()?);
    plan.args(["plan", "--medium"]).arg(&medium.full);
    let told = programs::run(&mut plan, steps::COMMAND_LIMIT)?;
    checks.contains(
        "what the installer for x86 says",
        &told.said(),
        "this medium is for arm64, and this machine is amd64",
    );
    Ok(())
}
