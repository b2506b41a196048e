//! Machines that boot from the network: one that a configuration names installs, though the server is killed on the way;
//! then it boots from its disk; one that nothing is for never installs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use installer::files::write_atomically;
use installer::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document, MAC};
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::serve::Server;
use nqrust_tests::{secrets, steps};

/// The card of a machine that nobody knows.
const STRANGER: &str = "52:54:00:6e:71:99";
/// From power on to the first question.
const ASK: Duration = Duration::from_secs(300);
/// What the console says when the installer begins to take the OS image from the server.
const WRITING: &str = "Writing the OS image";

#[test]
#[ignore = "not yet seen to pass from beginning to end: `make soak` runs it"]
fn a_known_machine_installs_from_the_network_though_the_server_dies_and_a_stranger_does_not() {
    scenario("serve", |artifacts| {
        let identity = Identity::load()?;
        let medium = Medium::built("netboot", |directory| stage(directory, &identity))?;
        let private = tempfile::tempdir()?;
        let nodes = private.path().join("nodes");
        let document = Document::new("node-n");
        let file = nodes.join(format!("mac-{}.yaml", MAC.replace(':', "-")));
        write_atomically(&file, document.to_json(&identity).to_string().as_bytes(), 0o600)?;
        let state = private.path().join("state");
        let log = artifacts.path("server.log");
        let mut server = Server::start(&medium.full, &nodes, &state, &log)?;

        stranger(&server, artifacts)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = Machine::new("install", Firmware::Bios).network_boot(MAC, &server.script()).disk(&disk);
        let mut vm = live.start(artifacts)?;
        server.wait_for("has taken its configuration", steps::BOOT).context("booting the installer")?;
        steps::expect(&mut vm, WRITING, steps::INSTALL).context("beginning to install")?;
        server.kill()?;
        std::thread::sleep(Duration::from_secs(5));
        server.again()?;
        steps::expect(&mut vm, steps::COMPLETE, steps::INSTALL).context("installing")?;
        vm.wait_for_exit(steps::SHUTDOWN).context("waiting for the reboot after the install")?;

        // It asks the server again, which sends it to its disk.
        let again =
            Machine::new("first-boot", Firmware::Bios).network_boot(MAC, &server.script()).disk(&disk);
        let (vm, ssh) = steps::boot(&again, &identity, artifacts)?;
        let mut checks = Checks::default();
        checks.contains("the server's log", &server.said()?, "boots from disk: it");
        checks.equal("the host name", ssh.run("hostname")?, "node-n");
        node::check_images(&ssh, &medium.release()?, "management", &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "first-boot")?;
        checks.finish("the first boot")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN)?;
        server.kill()?;
        let kept = fs::read_to_string(state.join("machines.json"))?;
        fs::write(artifacts.path("machines.json"), kept)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// The repository's definition without a configuration, which everybody could read.
fn stage(directory: &Path, identity: &Identity) -> Result<PathBuf> {
    let definition = medium::stage(directory, &Document::new("node-n").to_json(identity))?;
    let text = fs::read_to_string(&definition)?;
    let kept: Vec<_> = text.lines().filter(|line| !line.starts_with("install_config:")).collect();
    fs::write(&definition, kept.join("\n"))?;
    Ok(definition)
}

/// A machine that nothing is for is told to boot from its disk, which has nothing, and keeps it as it is.
fn stranger(server: &Server, artifacts: &Artifacts) -> Result<()> {
    let disk = Disk::empty(artifacts.disk("stranger.qcow2"), ByteSize::gib(32))?;
    let untouched = Disk::empty(artifacts.disk("untouched.qcow2"), ByteSize::gib(32))?;
    let machine =
        Machine::new("stranger", Firmware::Bios).network_boot(STRANGER, &server.script()).disk(&disk);
    let vm = machine.start(artifacts)?;
    let words = format!("machine {STRANGER} boots from disk: no configuration is for this machine");
    server.wait_for(&words, ASK)?;
    vm.kill()?;
    let mut checks = Checks::default();
    checks.that("the stranger's disk is empty", disk.same_bytes_as(&untouched)?);
    checks.finish("a machine that nobody knows")
}
