//! One finished ISO, customized for two machines: each gets its own configuration by the address of its card, without
//! any typing. One of them is installed on UEFI, and starts on BIOS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::{Checks, Document};
use nqrust_tests::programs;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::secrets;
use nqrust_tests::steps;

/// A kernel argument with characters that a shell, and GRUB's script, would interpret.
const ARGUMENT: &str = "e2e.argument=a$b;c{d}";

/// A machine: its name, the hardware address of its card, its firmware when it starts the ISO.
#[derive(Clone, Copy)]
struct Node {
    name: &'static str,
    mac: &'static str,
    firmware: Firmware,
}

const NODES: [Node; 2] = [
    Node { name: "customized-one", mac: "52:54:00:6e:71:11", firmware: Firmware::Uefi },
    Node { name: "customized-two", mac: "52:54:00:6e:71:12", firmware: Firmware::Bios },
];

#[test]
fn two_machines_get_their_own_configurations_from_one_customized_iso() {
    scenario("customize", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium(&identity)?;
        let before = fs::metadata(&medium.full)?.modified()?;
        let iso = customized(&medium.full, &identity, artifacts)?;
        let verified = iso_builder(&["verify"], &iso)?;
        let mut checks = Checks::default();
        checks.that("the ISO itself is as it was", fs::metadata(&medium.full)?.modified()? == before);
        checks.contains("verify", &verified, "customized with 2 configurations, 1 kernel argument");
        checks.finish("customizing")?;
        // The steps between the choice and the end are the same for both, and take minutes.
        let [one, two] = NODES;
        install(one, &iso, &identity, artifacts)?;
        choose(two, &iso, artifacts)?;
        iso_builder(&["customize", "--reset"], &iso)?;
        let mut compare = Command::new("cmp");
        programs::run(compare.arg(&medium.full).arg(&iso), steps::COMMAND_LIMIT)?
            .success("cmp, after --reset")?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Makes a copy of the ISO with a configuration for each machine and none for others.
fn customized(original: &Path, identity: &Identity, artifacts: &Artifacts) -> Result<PathBuf> {
    let iso = artifacts.disk("customized.iso");
    let mut command = programs::iso_builder()?;
    command.args(["customize", "--progress", "plain"]).arg(original).arg("-o").arg(&iso);
    command.args(["--kernel-argument", ARGUMENT]);
    for node in NODES {
        let mut document = Document::new(node.name).to_json(identity);
        document["install"]["management_interface"]["interfaces"][0]["hw_addr"] = node.mac.into();
        let path = artifacts.disk(&format!("{}.yaml", node.name));
        fs::write(&path, document.to_string())?;
        command.arg("--config-for").arg(format!("mac:{}={}", node.mac, path.display()));
    }
    let said = programs::run(&mut command, steps::COMMAND_LIMIT)?;
    artifacts.append("customize.txt", &said.said())?;
    said.success("iso-builder customize")?;
    Ok(iso)
}

impl Node {
    fn disk(&self, artifacts: &Artifacts) -> Result<Disk> {
        Disk::empty(artifacts.disk(&format!("{}.qcow2", self.name)), ByteSize::gib(32))
    }

    fn machine(&self, purpose: &str, firmware: Firmware, disk: &Disk) -> Machine {
        let machine = Machine::new(&format!("{}-{purpose}", self.name), firmware);
        machine.isolated_network(self.mac, "").disk(disk)
    }

    /// The machine with the ISO in its drive.
    fn live(&self, disk: &Disk, iso: &Path) -> Machine {
        self.machine("install", self.firmware, disk).cdrom(iso)
    }

    /// The installer's message about its choice.
    fn chosen(&self) -> String {
        format!("because this machine has mac:{}", self.mac)
    }
}

/// Boots the ISO until the installer has chosen a configuration.
fn choose(node: Node, iso: &Path, artifacts: &Artifacts) -> Result<()> {
    let mut vm = node.live(&node.disk(artifacts)?, iso).start(artifacts)?;
    let console = steps::expect(&mut vm, &node.chosen(), steps::INSTALL_LIMIT)?;
    ensure!(console.contains(ARGUMENT), "the kernel of {} has no {ARGUMENT}", node.name);
    vm.kill()
}

/// Installs from the ISO, boots on BIOS, and checks the node.
fn install(node: Node, iso: &Path, identity: &Identity, artifacts: &Artifacts) -> Result<()> {
    let disk = node.disk(artifacts)?;
    let console = steps::install(&node.live(&disk, iso), artifacts)?;
    let mut checks = Checks::default();
    checks.contains(&format!("the console of {}", node.name), &console.replace("\r\n", "\n"), &node.chosen());
    checks.contains(&format!("the kernel of {}", node.name), &console, ARGUMENT);
    let (vm, ssh) = steps::boot(&node.machine("first-boot", Firmware::Bios, &disk), identity, artifacts)?;
    checks.equal("the name of the node", ssh.run("hostname")?.trim(), node.name);
    steps::collect_logs(&ssh, artifacts, node.name)?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)?;
    checks.finish(node.name)
}

/// Runs `iso-builder` on the ISO; returns what it printed.
fn iso_builder(words: &[&str], iso: &Path) -> Result<String> {
    let mut command = programs::iso_builder()?;
    programs::run(command.args(words).arg(iso), steps::INSTALL_LIMIT)?.success("iso-builder")
}
