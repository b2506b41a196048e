//! Disks that were written without a machine: a raw one with a node document starts on UEFI; one as qcow2 without a document becomes a
//! node on BIOS, from a configuration volume, and another copy of it on UEFI, by the questions. All use the whole of the larger disk that
//! they find themselves on, and no two copies are the same machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::console::{picture, screen};
use nqrust_tests::disk::{Disk, Format};
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document, MAC};
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::secrets;
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;

use crate::questions::{AnsweredMachine, answer};

/// The size of the machines' disks; that of the images is the least that a trial needs.
pub(crate) const DISK: ByteSize = ByteSize::gib(32);
const IMAGE: ByteSize = ByteSize::gib(10);

#[test]
fn a_raw_disk_with_a_document_starts_on_uefi_and_each_copy_is_a_machine_of_its_own() {
    scenario("disk-raw", |artifacts| {
        let identity = Identity::load()?;
        let document = Document { device: None, ..Document::new("image-node") };
        let raw = Disk::raw(built("disk-raw", "raw", Some(&document), &identity)?);
        if fs::metadata(&raw.path)?.len() != IMAGE.get() {
            bail!("{} is not a disk of {IMAGE}", raw.path.display());
        }
        let mut checks = Checks::default();
        let mut ids = Vec::new();
        for copy in ["first", "second"] {
            let disk = raw.overlay(artifacts.disk(&format!("{copy}.qcow2")), Some(DISK))?;
            let machine = steps::node(&format!("{copy}-copy"), Firmware::Uefi, "").disk(&disk);
            let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
            node::check_document(&ssh, &document, &mut checks)?;
            ids.push(identities(&ssh)?);
            check_growth(&ssh, &mut checks)?;
            steps::collect_journal(&ssh, artifacts, copy)?;
            drop(ssh);
            vm.power_off(steps::SHUTDOWN_LIMIT)?;
        }
        checks.that("the machine ids of two copies differ", ids[0].0 != ids[1].0);
        checks.that("the SSH host keys of two copies differ", ids[0].1 != ids[1].1);
        checks.finish("two copies of a raw disk")?;
        secrets::search(artifacts.directory(), &identity)
    });
}

#[test]
fn a_qcow2_disk_without_a_document_becomes_a_node_on_bios_from_a_configuration_volume() {
    scenario("disk-qcow2", |artifacts| {
        let identity = Identity::load()?;
        let disk = copy_without_document(artifacts, &identity)?;
        let document = Document { device: None, ..Document::new("asked-node") };
        let volume = document.to_json(&identity).to_string();
        let volume = steps::configuration_volume("asked-node", volume.as_bytes(), artifacts)?;
        let first = Machine::new("first-start", Firmware::Bios).isolated_network(MAC, "").disk(&disk);
        let mut vm = first.disk(&volume).start(artifacts)?;
        steps::expect(&mut vm, "Writing the node document", steps::BOOT_LIMIT)?;
        vm.wait_for_exit(steps::SHUTDOWN_LIMIT).context("waiting for the restart as a node")?;

        let mut checks = Checks::default();
        let machine = steps::node("as-a-node", Firmware::Bios, "").disk(&disk);
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        node::check_document(&ssh, &document, &mut checks)?;
        check_growth(&ssh, &mut checks)?;
        check_asked_once(&ssh, &mut checks)?;
        steps::collect_journal(&ssh, artifacts, "as-a-node")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        checks.finish("a qcow2 disk without a document")?;
        secrets::search(artifacts.directory(), &identity)
    });
}

#[test]
#[ignore = "a start with questions and one as a node: `make soak` runs it"]
fn a_disk_without_a_document_asks_at_its_first_start_and_becomes_what_is_answered() {
    scenario("disk-asks", |artifacts| {
        let identity = Identity::load()?;
        let disk = copy_without_document(artifacts, &identity)?;
        let mut vm = steps::node("first-start", Firmware::Uefi, "").disk(&disk).start(artifacts)?;
        let screens = AnsweredMachine::first("answered-node").screens_of_first_start(&identity);
        screen(&mut vm, &[screens[0].0], steps::BOOT_LIMIT, artifacts)?;
        picture(&mut vm, "first-question", artifacts)?;
        answer(&mut vm, &screens, artifacts)?;
        vm.wait_for_exit(steps::INSTALL_LIMIT).context("waiting for the restart as a node")?;

        let mut checks = Checks::default();
        let machine = steps::node("as-a-node", Firmware::Uefi, "").disk(&disk);
        let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        checks.equal("the name that was typed", ssh.run("hostname")?.trim(), "answered-node");
        let kept = ssh.run("sudo -n stat -c '%a %U' /oem/node.yaml")?;
        checks.equal("mode and owner of the document", kept.trim(), "600 root");
        check_growth(&ssh, &mut checks)?;
        check_asked_once(&ssh, &mut checks)?;
        steps::collect_journal(&ssh, artifacts, "as-a-node")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        checks.finish("a disk that asked")?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// A machine's disk that begins as the image without a document.
fn copy_without_document(artifacts: &Artifacts, identity: &Identity) -> Result<Disk> {
    let path = built("disk-qcow2", "qcow2", None, identity)?;
    Disk { path, format: Format::Qcow2, log: None }.overlay(artifacts.disk("node.qcow2"), Some(DISK))
}

/// Builds one disk; returns its file.
fn built(name: &str, kind: &str, document: Option<&Document>, identity: &Identity) -> Result<PathBuf> {
    let stage = |directory: &Path| -> Result<PathBuf> {
        let embedded = Document::new("image-node").to_json(identity);
        let definition = medium::stage(directory, &embedded)?;
        want_disk(&definition, kind, document, identity)?;
        Ok(definition)
    };
    disk_of(&Medium::built(name, stage)?, kind)
}

/// Makes a definition one of the full ISO and of a disk, with `document` if there is one.
pub(crate) fn want_disk(
    definition: &Path,
    kind: &str,
    document: Option<&Document>,
    identity: &Identity,
) -> Result<()> {
    let mut value: serde_yaml::Value = serde_yaml::from_slice(&fs::read(definition)?)?;
    let map = value.as_mapping_mut().context("a definition")?;
    map.remove("install_config");
    map.insert("outputs".into(), vec!["full".to_owned(), format!("disk-{kind}")].into());
    if let Some(document) = document {
        let file = definition.with_file_name("e2e-node.yaml");
        fs::write(file, document.to_json(identity).to_string())?;
        let disk = serde_yaml::Mapping::from_iter([("config".into(), "e2e-node.yaml".into())]);
        map.insert("disk".into(), disk.into());
    }
    Ok(fs::write(definition, serde_yaml::to_string(&value)?)?)
}

/// The file of the disk that was built with `medium`.
pub(crate) fn disk_of(medium: &Medium, kind: &str) -> Result<PathBuf> {
    let directory = medium.full.parent().context("the medium is in no directory")?;
    let found = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path()));
    let disk = found.into_iter().find(|path| path.extension().is_some_and(|extension| extension == kind));
    disk.with_context(|| format!("the build left no {kind} in {}", directory.display()))
}

/// The machine id and an SSH host key.
fn identities(ssh: &Ssh) -> Result<(String, String)> {
    let key = "sudo -n cat /oem/ssh/ssh_host_ed25519_key.pub";
    Ok((ssh.run("cat /etc/machine-id")?, ssh.run(key)?))
}

/// A node that has its document does not ask for it.
fn check_asked_once(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let state = ssh.run("systemctl show --property ConditionResult nqrust-first-start.service")?;
    checks.equal("whether it is asked again", state.trim(), "ConditionResult=no");
    Ok(())
}

/// The last partition reaches to the end of the disk, and its file system to the end of the partition.
pub(crate) fn check_growth(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let data = "/var/lib/harvester/defaultdisk";
    let size = ssh.run(&format!("lsblk -bno SIZE $(findmnt -no SOURCE {data})"))?;
    let partition: u64 = size.trim().parse().with_context(|| format!("the size is {size:?}"))?;
    checks.that("the last partition has grown", partition > (DISK.get() - IMAGE.get()));
    let size = ssh.run(&format!("df -B1 --output=size {data} | tail -n 1"))?;
    let room: u64 = size.trim().parse().with_context(|| format!("the size is {size:?}"))?;
    checks.that("its file system has grown", room > partition / 10 * 9);
    Ok(())
}
