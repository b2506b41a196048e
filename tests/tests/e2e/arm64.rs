//! Media for 64-bit Arm, built on this host: an install from the ISO, and the node.

use anyhow::Result;
use base::size::ByteSize;
use model::architecture::Architecture;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document, MAC};
use nqrust_tests::paths;
use nqrust_tests::programs;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::secrets;
use nqrust_tests::steps;

#[test]
#[ignore = "a base system is put together under emulation: half an hour"]
fn a_medium_for_arm64_installs_with_secure_boot_and_its_node_starts_and_is_no_medium_for_x86() {
    scenario("arm64", |artifacts| {
        let identity = Identity::load()?;
        let document = Document::new("node-arm");
        let medium = Medium::built_with(&paths::installer_arm64()?, "arm64", |directory| {
            medium::stage_arm64(directory, &document.to_json(&identity))
        })?;
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
