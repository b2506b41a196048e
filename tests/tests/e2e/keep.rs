//! A node that is installed again and keeps the data of virtual machines.

use anyhow::Result;
use base::size::ByteSize;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::{self, Checks, Document};
use nqrust_tests::qemu::Firmware;
use nqrust_tests::ssh::Ssh;
use nqrust_tests::{secrets, steps};
use serde_json::json;

/// Where the node mounts its data partition.
const DATA: &str = "/var/lib/harvester/defaultdisk";

#[test]
#[ignore = "two installs and two boots; make soak"]
fn a_node_that_is_installed_again_keeps_its_data_and_nothing_else() {
    scenario("keep", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium(&identity)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = steps::node("install", Firmware::Bios, "").cdrom(&medium.full).disk(&disk);
        steps::install(&live, artifacts)?;

        let machine = steps::node("first-boot", Firmware::Bios, "").disk(&disk);
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        ssh.run(&format!("sudo -n dd if=/dev/urandom of={DATA}/volume.img bs=1M count=64 status=none"))?;
        ssh.run("sudo -n touch /var/lib/e2e-trace && sync")?;
        let before = KeptData::of(&ssh)?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;

        let keep = json!({ "install": { "keep": ["data"], "reinstall": true } }).to_string();
        let volume = steps::configuration_volume("keep", keep.as_bytes(), artifacts)?;
        let live =
            steps::node("install-again", Firmware::Bios, "").cdrom(&medium.full).disk(&disk).disk(&volume);
        steps::install(&live, artifacts)?;

        let machine = steps::node("boot-again", Firmware::Uefi, "").disk(&disk);
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        let mut checks = Checks::default();
        let after = KeptData::of(&ssh)?;
        checks.equal("the file", &after.file, &before.file);
        checks.equal("the identity of the data partition", &after.identity, &before.identity);
        checks.that("the machine has another identity", after.machine != before.machine);
        checks.that("the old system's files are gone", !ssh.succeeds("test -e /var/lib/e2e-trace")?);
        node::check_document(&ssh, &Document::new("node-a"), &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "boot-again")?;
        checks.finish("the boot after the second install")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// The state of a running node that an install keeps or changes.
struct KeptData {
    file: String,
    identity: String,
    machine: String,
}

impl KeptData {
    fn of(ssh: &Ssh) -> Result<Self> {
        Ok(Self {
            file: ssh.run(&format!("sudo -n sha256sum {DATA}/volume.img"))?,
            identity: ssh.run(&format!("findmnt -no PARTUUID,UUID {DATA}"))?,
            machine: ssh.run("cat /etc/machine-id")?,
        })
    }
}
