//! Media for 64-bit Arm, built on this host: an install from the ISO and over the network, the node, its update and its reset; and
//! media of both architectures from one build, as releases at one tag. In `cluster` such a machine joins a cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::size::ByteSize;
use model::architecture::Architecture;
use model::release::MANIFEST;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::damage;
use nqrust_tests::disk::{Disk, Format};
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document, MAC};
use nqrust_tests::paths;
use nqrust_tests::programs;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::registry::{Registry, RegistryAccess};
use nqrust_tests::secrets;
use nqrust_tests::segment::Segment;
use nqrust_tests::serve::Server;
use nqrust_tests::steps;
use nqrust_tests::updates::{
    self, CURRENT, NEXT, UPDATE_LIMIT, awaited, restarted, restarted_where, set_version, settled, slot,
};
use serde_json::Value;
use walkdir::WalkDir;

use crate::disk_images::{DISK, check_growth, disk_of, want_disk};

/// For one command on the media of both architectures, which are read as a whole.
const MEDIA_LIMIT: Duration = Duration::from_secs(900);

/// The first release of Debian whose iPXE has a loader for arm64.
const LOADERS_SUITE: &str = "trixie";
/// The time limit of unpacking two packages.
const UNPACK_LIMIT: Duration = Duration::from_secs(600);

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
    let built = Medium::built_with(&paths::installer_arm64()?, medium::ARM64, |directory| {
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
    // The logs of the install were in /var.
    steps::collect_journal(&ssh, artifacts, "reset")?;
    checks.finish("update and reset")?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)
}

#[test]
#[ignore = "a base system is put together under emulation: half an hour"]
fn a_disk_image_for_arm64_starts_with_secure_boot_as_the_node_of_its_document() {
    scenario("arm64-disk", |artifacts| {
        let identity = Identity::load()?;
        let document = Document { device: None, ..Document::new("node-arm") };
        let built = Medium::built_with(&paths::installer_arm64()?, medium::ARM64, |directory| {
            let definition = medium::stage_arm64(directory, None)?;
            want_disk(&definition, "qcow2", Some(&document), &identity)?;
            Ok(definition)
        })?;
        let image = Disk { path: disk_of(&built, "qcow2")?, format: Format::Qcow2, log: None };
        let disk = image.overlay(artifacts.disk("node.qcow2"), Some(DISK))?;
        let machine = steps::node("first-boot", Firmware::SecureBoot, "").arm64().disk(&disk);
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        let mut checks = Checks::default();
        checks.equal("the machine", ssh.run("uname -m")?, "aarch64");
        checks.that("Secure Boot is on", ssh.run("sudo -n dmesg")?.contains("Secure boot enabled"));
        node::check_document(&ssh, &document, &mut checks)?;
        node::check_immutable(&ssh, &mut checks)?;
        check_growth(&ssh, &mut checks)?;
        steps::collect_journal(&ssh, artifacts, "first-boot")?;
        checks.finish("the first boot")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
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
        let loaders = loaders(private.path())?;
        let server = Server::on_segment(&segment, Some(&loaders), [&medium.full, &nodes, &state, &log])?;
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

/// A directory in `place` with the loaders for machines with arm64, which this host need not have: they are unpacked from packages.
fn loaders(place: &Path) -> Result<PathBuf> {
    let (tree, loaders) = (place.join("packages"), place.join("loaders"));
    let mut unpack = Command::new("mmdebstrap");
    unpack.args(["--quiet", "--variant=extract", "--format=directory", "--architectures=arm64"]);
    // Nothing of it is run.
    unpack.args(["--skip=check/qemu", "--include=ipxe,grub-efi-arm64-signed"]);
    programs::run(unpack.arg(LOADERS_SUITE).arg(&tree), UNPACK_LIMIT)?.success("unpacking the loaders")?;
    fs::create_dir(&loaders)?;
    for (file, name) in [
        ("usr/lib/ipxe/ipxe-arm64.efi", "ipxe-arm64.efi"),
        ("usr/lib/grub/arm64-efi-signed/grubnetaa64.efi.signed", "grubaa64.efi"),
    ] {
        fs::copy(tree.join(file), loaders.join(name)).with_context(|| format!("copying {file}"))?;
    }
    Ok(loaders)
}

/// The installer of another architecture says for which one the medium is, before it plans anything.
fn refused_on_x86(medium: &Medium, checks: &mut Checks) -> Result<()> {
    let mut plan = Command::new(paths::installer()?);
    plan.args(["plan", "--medium"]).arg(&medium.full);
    refused_as_arm64(&mut plan, checks)
}

fn refused_as_arm64(plan: &mut Command, checks: &mut Checks) -> Result<()> {
    let told = programs::run(plan, steps::COMMAND_LIMIT)?;
    checks.equal("the exit code of the installer for x86", told.code, 3);
    checks.contains(
        "what the installer for x86 says",
        &told.said(),
        "this medium is for arm64, and this machine is amd64",
    );
    Ok(())
}

#[test]
#[ignore = "bases of both architectures, one of them under emulation: a quarter of an hour"]
fn one_build_makes_media_of_both_architectures_and_one_tag_of_a_registry_has_both_releases() {
    scenario("arm64-and-amd64", |artifacts| {
        let identity = Identity::load()?;
        let output = medium::built_for_both()?;
        let mut checks = Checks::default();
        let verified = iso_builder(&["verify"], &[&output])?.success("iso-builder verify")?;
        for architecture in Architecture::ALL {
            let directory = output.join(architecture.debian());
            let release = Medium::in_directory(&directory)?.release()?;
            checks.equal("the architecture of a release", release.architecture, architecture);
            checks.contains("verify", &verified, &directory.display().to_string());
        }
        damage_is_found(&output, artifacts, &mut checks)?;

        let registry = Registry::start(&artifacts.disk("registry"), RegistryAccess::default())?;
        let reference = format!("{}/nqrust/release:{CURRENT}", registry.host());
        let pushed =
            iso_builder(&["push"], &[&output, Path::new(&reference)])?.success("iso-builder push")?;
        checks.contains("push", &pushed, "which has this version for amd64 and arm64");
        one_index(&reference, &mut checks)?;
        let mut pulled = Pulled { reference, output, artifacts, checks };
        // Without the option it is the release for this machine.
        pulled.release(Architecture::Amd64, &[])?;
        let tree = pulled.release(Architecture::Arm64, &["--architecture", "arm64"])?;

        let config = artifacts.disk("node.json");
        let document = Document::new("node-both").to_json(&identity).to_string();
        files::write_atomically(&config, document.as_bytes(), 0o600)?;
        let mut plan = Command::new(paths::installer()?);
        plan.args(["plan", "--config"]).arg(&config).arg("--medium").arg(&tree);
        let mut checks = pulled.checks;
        refused_as_arm64(&mut plan, &mut checks)?;
        checks.finish("the releases in a registry")
    });
}

/// A command of `iso-builder` on files or references.
fn iso_builder(words: &[&str], on: &[&Path]) -> Result<programs::ProgramOutput> {
    let mut command = programs::iso_builder()?;
    programs::run(command.args(words).args(on), MEDIA_LIMIT)
}

/// One changed byte of the kernel for arm64 is a fault of the whole, which names the file.
fn damage_is_found(output: &Path, artifacts: &Artifacts, checks: &mut Checks) -> Result<()> {
    let damaged = artifacts.disk("damaged");
    let mut kernel = None;
    for entry in WalkDir::new(output) {
        let entry = entry?;
        let within = entry.path().strip_prefix(output)?;
        let copy = damaged.join(within);
        if entry.file_type().is_dir() {
            fs::create_dir_all(copy)?;
        } else if within.starts_with("arm64") && within.to_string_lossy().ends_with("-vmlinuz") {
            fs::copy(entry.path(), &copy)?;
            damage::invert(&copy, 1 << 20)?;
            kernel = Some(entry.file_name().to_string_lossy().into_owned());
        } else {
            fs::hard_link(entry.path(), copy)?;
        }
    }
    let told = iso_builder(&["verify"], &[&damaged])?;
    checks.equal("the exit code of verify for a changed medium", told.code, 4);
    checks.contains("what verify says of it", &told.said(), &kernel.context("the kernel for arm64")?);
    Ok(fs::remove_dir_all(damaged)?)
}

/// The tag leads to one index with a manifest for each architecture.
fn one_index(reference: &str, checks: &mut Checks) -> Result<()> {
    let mut inspect = Command::new("skopeo");
    inspect.args(["inspect", "--raw", "--tls-verify=false"]).arg(format!("docker://{reference}"));
    let index = programs::run(&mut inspect, steps::COMMAND_LIMIT)?.success("skopeo inspect")?;
    let index: Value = serde_json::from_str(&index).context("the index")?;
    let platforms = index["manifests"].as_array().cloned().unwrap_or_default();
    let platforms: Vec<_> = platforms.iter().map(|entry| entry["platform"]["architecture"].clone()).collect();
    checks.equal("the architectures of the index", platforms, Architecture::ALL.map(Architecture::debian));
    Ok(())
}

/// The releases of both architectures at one tag, and the outputs of the build that they came from.
struct Pulled<'a> {
    reference: String,
    output: PathBuf,
    artifacts: &'a Artifacts,
    checks: Checks,
}

impl Pulled<'_> {
    /// Pulls a release and its ISO, which are the built ones; returns the directory of the release.
    fn release(&mut self, architecture: Architecture, options: &[&str]) -> Result<PathBuf> {
        let name = architecture.debian();
        let (tree, iso) = (self.artifacts.disk(name), self.artifacts.disk(&format!("{name}.iso")));
        let mut pull = programs::iso_builder()?;
        pull.arg("pull").args(options).arg(&self.reference).arg(&tree).arg("--iso").arg(&iso);
        programs::run(&mut pull, MEDIA_LIMIT)?.success("iso-builder pull")?;
        iso_builder(&["verify"], &[&tree])?.success("iso-builder verify of what was pulled")?;
        let built = self.output.join(name);
        let same = fs::read(tree.join(MANIFEST))? == fs::read(built.join(MANIFEST))?;
        self.checks.that(&format!("the release manifest for {name} is the built one"), same);
        let full = Medium::in_directory(&built)?.full;
        let digest = |path: &Path| -> Result<_> { Ok(Digest::of_reader(fs::File::open(path)?)?.0) };
        self.checks.equal(&format!("the digest of the ISO for {name}"), digest(&iso)?, digest(&full)?);
        fs::remove_file(iso)?;
        Ok(tree)
    }
}
