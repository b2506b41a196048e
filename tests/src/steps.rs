//! Steps that the install tests and the benchmarks share: install, boot, log in, collect logs.

use std::fs::{self, File};
use std::time::Duration;

use crate::artifacts::Artifacts;
use crate::deadline::{Deadline, MACHINE_INTERVAL};
use crate::disk::{Disk, Format};
use crate::distribution;
use crate::identity::{Identity, USER};
use crate::medium::{self, Medium};
use crate::node::{Document, INSTALL_LOGS, MAC};
use crate::paths;
use crate::programs;
use crate::qemu::{Firmware, Machine, Vm};
use crate::serial::ConsoleAnswer;
use crate::ssh::Ssh;
use anyhow::{Context, Result, bail};
use base::digest::Digest;
use base::size::ByteSize;
use serde_json::json;

/// From power on to the end of an install, under emulation with two machines side by side.
pub const INSTALL_LIMIT: Duration = Duration::from_secs(1200);

/// From power on to a login prompt.
pub const BOOT_LIMIT: Duration = Duration::from_secs(420);

/// From pressing the power button to the end.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(180);

/// The time limit of one command on the console.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(180);

/// From the login of a machine with Kubernetes until its node is ready, with three machines side by side.
pub const READY_LIMIT: Duration = Duration::from_secs(2400);

/// The line of `installer status` for a node that is ready in its cluster.
pub const TOLD_READY: &str = "cluster   ready";

/// The size of the disk of [`installed_disk`].
const INSTALLED_SIZE: ByteSize = ByteSize::gib(24);

/// Printed at the end of an install.
pub const INSTALL_COMPLETE: &str = "Installation complete";

/// Console output after which waiting is pointless. An error of the installer is recognized by the lines after its
/// first: GRUB also begins lines with `error:`, and goes on.
const BAD_ENDS: [&str; 6] = [
    "\n  because: ",
    "\n  next: ",
    "Kernel panic",
    "emergency mode",
    "No bootable option",
    "Failed to start nqrust-",
];

/// The medium whose embedded configuration installs `node-a` on DHCP.
pub fn medium(identity: &Identity) -> Result<Medium> {
    Medium::shared("node-a", &Document::new("node-a").to_json(identity))
}

/// The medium of the repository's definition without a configuration, whose secrets everyone could read.
pub fn medium_without_configuration(identity: &Identity) -> Result<Medium> {
    Medium::built("netboot", |directory| {
        let definition = medium::stage(directory, &Document::new("node-n").to_json(identity))?;
        let text = fs::read_to_string(&definition)?;
        let kept: Vec<_> = text.lines().filter(|line| !line.starts_with("install_config:")).collect();
        fs::write(&definition, kept.join("\n"))?;
        Ok(definition)
    })
}

/// The medium for nodes of clusters, with the release of a distribution and without a configuration.
pub fn medium_with_distribution() -> Result<Medium> {
    Medium::built("cluster", |directory| {
        let definition = medium::stage(directory, &json!({}))?;
        distribution::add(&definition)?;
        Ok(definition)
    })
}

/// A volume with this configuration, made by `iso-builder config-medium`, as on a stick that a person plugs in.
pub fn configuration_volume(name: &str, configuration: &[u8], artifacts: &Artifacts) -> Result<Disk> {
    let file = artifacts.disk(&format!("{name}-config.yaml"));
    let volume = artifacts.disk(&format!("{name}-config.img"));
    fs::write(&file, configuration)?;
    let mut make = programs::iso_builder()?;
    make.args(["config-medium", "--progress", "plain", "--config"]).arg(&file).arg("-o").arg(&volume);
    programs::run(&mut make, COMMAND_LIMIT)?.success("iso-builder config-medium")?;
    Ok(Disk::raw(volume))
}

/// Waits for `pattern` on the console; fails at a kernel panic, an error of the installer and the like.
pub fn expect(vm: &mut Vm, pattern: &str, limit: Duration) -> Result<String> {
    let mut patterns = vec![pattern];
    patterns.extend(BAD_ENDS);
    let (index, text) = vm.serial.wait_for_any(&patterns, limit)?;
    if index > 0 {
        // The following output tells the reason.
        let more = vm.serial.rest(Duration::from_secs(3));
        let before: Vec<_> = text.lines().rev().take(5).collect();
        let before: Vec<_> = before.into_iter().rev().collect();
        bail!("instead of {pattern:?} the console said:\n{}{more}", before.join("\n"));
    }
    Ok(text)
}

/// Starts a machine that boots a medium and waits until it has installed and wants to reboot. Returns the console
/// output.
pub fn install(machine: &Machine, artifacts: &Artifacts) -> Result<String> {
    let mut vm = machine.start(artifacts)?;
    let console = expect(&mut vm, INSTALL_COMPLETE, INSTALL_LIMIT).context("installing")?;
    vm.wait_for_exit(SHUTDOWN_LIMIT).context("waiting for the reboot after the install")?;
    Ok(console)
}

/// The disk of a node that has never started, installed from [`medium`] once for all tests that only begin with it. Each gets a copy.
pub fn installed_disk(identity: &Identity, artifacts: &Artifacts) -> Result<Disk> {
    let medium = medium(identity)?;
    let place = paths::e2e().join("installed");
    fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
    let _lock = medium::lock(&place.join("lock"))?;
    let digest = Digest::of_reader(File::open(&medium.full)?)?.0.to_string();
    let (disk, new, made_from) =
        (place.join("node-a.qcow2"), place.join("node-a.qcow2.new"), place.join("medium.sha256"));
    if !disk.exists() || fs::read_to_string(&made_from).ok().as_ref() != Some(&digest) {
        let machine = Machine::new("install", Firmware::Bios).cdrom(&medium.full).network(MAC);
        install(&machine.disk(&Disk::empty(new.clone(), INSTALLED_SIZE)?), artifacts)?;
        fs::write(made_from, digest)?;
        fs::rename(new, &disk)?;
    }
    Disk { path: disk, format: Format::Qcow2, log: None }.overlay(artifacts.disk("node.qcow2"), None)
}

/// Starts an installed node and waits until it answers over SSH.
pub fn boot(machine: &Machine, identity: &Identity, artifacts: &Artifacts) -> Result<(Vm, Ssh)> {
    let mut vm = machine.start(artifacts)?;
    let ssh = log_in(&mut vm, identity, artifacts)?;
    Ok((vm, ssh))
}

/// Waits until a node that boots answers over SSH.
pub fn log_in(vm: &mut Vm, identity: &Identity, artifacts: &Artifacts) -> Result<Ssh> {
    expect(vm, " login: ", BOOT_LIMIT).context("booting the node")?;
    let port = vm.ssh_port()?;
    Ssh::connect(port, USER, identity, artifacts, BOOT_LIMIT)
}

/// Waits for a node's own word that it is ready in its cluster.
pub fn await_ready(ssh: &Ssh) -> Result<()> {
    Deadline::after(READY_LIMIT).every(MACHINE_INTERVAL).poll("the node's own word that it is ready", || {
        Ok(ssh.run("sudo -n installer status || true")?.contains(TOLD_READY).then_some(()))
    })
}

/// The machine of an installed node, with its disk and an isolated network.
pub fn node(purpose: &str, firmware: Firmware, address: &str) -> Machine {
    Machine::new(purpose, firmware).isolated_network(MAC, address)
}

/// Runs a container from `image` on the console while the network cable is unplugged.
pub fn run_container_offline(vm: &mut Vm, identity: &Identity, image: &str) -> Result<()> {
    vm.set_link(false)?;
    vm.serial.login(USER, &identity.password, COMMAND_LIMIT)?;
    // Messages of the kernel would appear in the middle of command output.
    vm.serial.run("sudo -n dmesg --console-off", COMMAND_LIMIT)?;
    let answer = vm.serial.run("cat /sys/class/net/e*/carrier", COMMAND_LIMIT)?;
    if answer.text.trim() != "0" {
        bail!("the cable is out, but the node sees a carrier: {:?}", answer.text);
    }
    let command = format!("sudo -n ctr -n k8s.io run --rm {image} e2e /bin/busybox echo it-runs");
    let ConsoleAnswer { code, text } = vm.serial.run(&command, COMMAND_LIMIT)?;
    if code != 0 || !text.contains("it-runs\n") {
        bail!("a container of {image} ended with exit code {code} and said {text:?}");
    }
    vm.set_link(true)
}

/// Copies the installer's logs and this boot's journal from the node, to be searched for secrets.
pub fn collect_logs(ssh: &Ssh, artifacts: &Artifacts, boot: &str) -> Result<()> {
    let install = ssh.run(&format!("sudo -n sh -c 'cat {INSTALL_LOGS}/*'"))?;
    let committed = |line: &str| line.contains(r#""step":"commit""#) && line.contains(r#""state":"done""#);
    if !install.lines().any(committed) {
        bail!("the logs in {INSTALL_LOGS} do not tell that the install was committed");
    }
    artifacts.append(&format!("{boot}-install-logs.txt"), &install)?;
    collect_journal(ssh, artifacts, boot)
}

/// Keeps the journal of a node that nobody has installed.
pub fn collect_journal(ssh: &Ssh, artifacts: &Artifacts, boot: &str) -> Result<()> {
    let journal = ssh.run("sudo -n journalctl --boot --no-pager")?;
    artifacts.append(&format!("{boot}-journal.txt"), &journal)
}
