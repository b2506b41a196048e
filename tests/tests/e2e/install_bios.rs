//! The full ISO as an optical disc on BIOS: install, first boot, second boot with a changed document.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result};
use base::size::ByteSize;
use model::config::Role;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::installed;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document, NODE_DOCUMENT};
use nqrust_tests::qemu::Firmware;
use nqrust_tests::secrets;
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;

const SIZE: ByteSize = ByteSize::gib(32);

/// An entry of the menu of the medium.
const MENU: &str = "Boot from local disk";

/// From power on to that menu.
const FIRMWARE: Duration = Duration::from_secs(120);

/// The address after the change of the document.
const STATIC_ADDRESS: &str = "10.0.2.77";

#[test]
fn a_full_iso_installs_on_bios_and_the_node_follows_its_document_at_every_boot() {
    scenario("install-bios", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium(&identity)?;
        let release = medium.release()?;
        let disk = Disk::empty_raw(artifacts.disk("node.img"), SIZE)?;

        // This network has only a DHCP server: a full medium needs no more.
        let live = steps::node("install", Firmware::Bios, "").disk(&disk).cdrom(&medium.full);
        let console = steps::install(&live, artifacts)?;
        check_progress(&console)?;

        let machine = steps::node("first-boot", Firmware::Bios, "").disk(&disk);
        let (mut vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        let mut checks = Checks::default();
        node::check_document(&ssh, &Document::new("node-a"), &mut checks)?;
        node::check_immutable(&ssh, &mut checks)?;
        node::check_images(&ssh, &release, "management", &mut checks)?;
        leave_traces(&ssh)?;
        change_document(&ssh, &identity)?;
        steps::collect_logs(&ssh, artifacts, "first-boot")?;
        checks.finish("the first boot")?;
        for image in node::image_names(&release, "management").iter().take(1) {
            steps::run_container_offline(&mut vm, &identity, image)?;
        }
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;

        second_boot(&disk, &identity, artifacts)?;
        unfinished_disk(&disk, &medium, artifacts)?;
        secrets::search(&medium::logs("node-a"), &identity)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Boots the same disk with the other firmware and the changed document.
fn second_boot(disk: &Disk, identity: &Identity, artifacts: &Artifacts) -> Result<()> {
    let machine = steps::node("second-boot-on-uefi", Firmware::Uefi, STATIC_ADDRESS).disk(disk);
    let (vm, ssh) = steps::boot(&machine, identity, artifacts)?;
    let mut checks = Checks::default();
    node::check_document(&ssh, &changed(), &mut checks)?;
    checks.that("a file in /etc is gone after a reboot", !ssh.succeeds("test -e /etc/e2e-trace")?);
    checks.that("a file in /var/lib stays", ssh.succeeds("test -e /var/lib/e2e-trace")?);
    checks.that("a file in /home stays", ssh.succeeds("test -e ~/e2e-trace")?);
    steps::collect_logs(&ssh, artifacts, "second-boot")?;
    checks.finish("the second boot")?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)
}

/// A disk with an interrupted install does not keep the machine from booting the medium, although the firmware tries
/// the disk first: neither just before the commit, when GRUB is there without its files, nor before GRUB is there.
fn unfinished_disk(disk: &Disk, medium: &Medium, artifacts: &Artifacts) -> Result<()> {
    let expected = installed::expected(medium, Role::Management, SIZE)?;
    let esp = expected.parts.iter().find(|part| part.name == "esp").context("no EFI system partition")?;
    let writer = File::options().write(true).open(&disk.path)?;
    // `int 0x18`: nothing to boot here.
    let changes: [(&str, u64, &[u8]); 2] =
        [("uncommitted", esp.start, &[0; 512]), ("without-grub", 0, &[0xcd, 0x18, 0xf4, 0xeb, 0xfd])];
    for (purpose, place, bytes) in changes {
        writer.write_all_at(bytes, place)?;
        let machine = steps::node(purpose, Firmware::Bios, "").disk(disk).cdrom(&medium.full);
        let mut vm = machine.start(artifacts)?;
        steps::expect(&mut vm, MENU, FIRMWARE).with_context(|| format!("booting past a disk {purpose}"))?;
        vm.kill()?;
    }
    Ok(())
}

fn changed() -> Document {
    Document { address: Some(STATIC_ADDRESS.into()), swappiness: 11, ..Document::new("node-renamed") }
}

fn leave_traces(ssh: &Ssh) -> Result<()> {
    ssh.run("sudo -n touch /etc/e2e-trace /var/lib/e2e-trace && touch ~/e2e-trace && sync").map(drop)
}

fn change_document(ssh: &Ssh, identity: &Identity) -> Result<()> {
    let document = changed().to_json(identity).to_string();
    ssh.write_as_root(NODE_DOCUMENT, document.as_bytes()).context("changing the node document")?;
    ssh.run("sync").map(drop)
}

/// Checks that the console shows the documented progress: begin and end of each step.
fn check_progress(console: &str) -> Result<()> {
    let mut checks = Checks::default();
    let begun = console.lines().filter(|line| line.trim_start().starts_with("[....] ")).count();
    let done = console.lines().filter(|line| line.trim_start().starts_with("[ ok ] ")).count();
    checks.that(&format!("several steps begin on the console ({begun})"), begun >= 3);
    checks.that(&format!("every step that begins ends ({begun} begin, {done} end)"), done >= begun);
    checks.that("no step fails", !console.contains("[FAIL]"));
    checks.finish("progress on the console")
}
