//! The installer's questions, answered with the keys of a serial terminal, with everything that can go wrong before and
//! during an install. `node_console` covers the screen and its keyboard.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::console::{
    CTRL_F, CTRL_N, CTRL_R, CTRL_U, DOWN, ESCAPE, PAGE_DOWN, SCREEN_LIMIT, plug_in, screen,
};
use nqrust_tests::deadline::Deadline;
use nqrust_tests::disk::Disk;
use nqrust_tests::fragile::FragileDisk;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::{Checks, INSTALL_LOGS, MAC, NODE_DOCUMENT};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::{medium, paths, programs, secrets, steps};
use testing::supervisor::{Authorities, Supervisor, SupervisorBehavior};

use crate::questions::{AnsweredMachine, answer, open_help_access, root_shell};

/// The port of K3s's supervisor and API.
const K3S: u16 = 6443;

/// A cluster on this host, which virtual machines reach as 10.0.2.2. Another test may still use the port.
pub(crate) fn cluster(authorities: &Authorities, manner: &SupervisorBehavior) -> Result<Supervisor> {
    Deadline::after(steps::INSTALL_LIMIT).poll("the port of the cluster", || {
        Ok(Supervisor::start_on(([127, 0, 0, 1], K3S).into(), authorities, manner.clone()).ok())
    })
}

/// A cluster of K3s with the token of the identity.
pub(crate) fn manner(identity: &Identity) -> SupervisorBehavior {
    let token = || identity.token.clone();
    let version = "v1.33.1+k3s1".to_owned();
    SupervisorBehavior {
        distribution: "k3s",
        server_token: token(),
        agent_token: token(),
        version,
        ..SupervisorBehavior::default()
    }
}

#[test]
#[ignore = "questions only, but minutes of them: `make soak` runs it"]
fn mistakes_in_network_and_token_are_reported_and_corrected_and_help_access_works() {
    scenario("console-questions", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_with_distribution()?;
        let authorities = Authorities::make(&artifacts.disk("authorities"))?;
        let cluster = cluster(&authorities, &manner(&identity))?;
        // Large enough for the production profile, which requires more processors and memory than this machine has.
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(300))?;
        let live = Machine::new("questions", Firmware::Bios).network(MAC).disk(&disk).cdrom(&medium.full);
        let mut vm = live.start(artifacts)?;
        let mut screens = AnsweredMachine::joining("node-q", "10.0.2.2", "not-the-token-of-this-cluster")
            .screens(&identity);
        screens[1].1 = CTRL_N.to_string();
        answer(&mut vm, &screens[..2], artifacts)?;
        screen(&mut vm, &["management network"], SCREEN_LIMIT, artifacts)?;
        pull_the_cable(&mut vm, artifacts)?;
        vm.serial.keys(&screens[2].1)?;
        screen(&mut vm, &["names and servers"], SCREEN_LIMIT, artifacts)?;
        vm.serial.keys("node-q")?;
        let_somebody_in(&mut vm, artifacts)?;
        vm.serial.keys(&CTRL_N.to_string())?;
        answer(&mut vm, &screens[4..5], artifacts)?;
        screen(&mut vm, &["refused:"], SCREEN_LIMIT, artifacts)?;
        vm.serial.keys(&format!("{CTRL_U}{}{CTRL_N}", identity.token))?;
        answer(&mut vm, &screens[5..6], artifacts)?;
        screen(&mut vm, &["does not meet the requirements"], SCREEN_LIMIT, artifacts)?;
        let unfit = vm.serial.screen();
        vm.serial.keys(&format!("{DOWN}{DOWN}\r"))?;
        // The warnings of a machine that is no node for production fill more than a screen, and come before the plan.
        screen(&mut vm, &["Warning: "], SCREEN_LIMIT, artifacts)?;
        let read_on = |vm: &mut Vm, wanted: &str| {
            Deadline::after(SCREEN_LIMIT).poll(wanted, || {
                if vm.serial.wait_for_screen(&[wanted], Duration::from_secs(5)).is_ok() {
                    return Ok(Some(()));
                }
                vm.serial.keys(PAGE_DOWN).map(|()| None)
            })?;
            screen(vm, &[wanted], SCREEN_LIMIT, artifacts)
        };
        read_on(&mut vm, "Left out of the checks: cpu, memory")?;
        read_on(&mut vm, "is erased")?;
        let plan = vm.serial.screen();
        vm.kill()?;
        let mut checks = Checks::default();
        checks.contains("what the machine lacks", &unfit, "Use a machine with more memory.");
        checks.contains("the plan", &plan, "/dev/vda");
        let asked = cluster.asked();
        let harmless =
            asked.iter().all(|request| request.starts_with("GET ") || request.starts_with("HEAD "));
        checks.that(
            &format!("the cluster was asked, and not changed: {asked:?}"),
            harmless && !asked.is_empty(),
        );
        checks.finish("the questions")?;
        secrets::search(&medium::logs("cluster"), &identity)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// The screen says that the network is gone while the cable is unplugged, and that it is back afterwards.
fn pull_the_cable(vm: &mut Vm, artifacts: &Artifacts) -> Result<()> {
    vm.set_link(false)?;
    vm.serial.keys(&CTRL_R.to_string())?;
    screen(vm, &["Check cables"], SCREEN_LIMIT, artifacts)?;
    vm.set_link(true)?;
    vm.serial.keys(&CTRL_R.to_string())?;
    screen(vm, &["has the address"], SCREEN_LIMIT, artifacts).map(drop)
}

/// Help access from the screen with the host name: a login with the password is possible while it is open, by SSH and
/// on the console, and not before or afterwards. The answers that were typed are kept.
fn let_somebody_in(vm: &mut Vm, artifacts: &Artifacts) -> Result<()> {
    let port = vm.ssh_port()?;
    let mut checks = Checks::default();
    let come = |password: &str| Ssh::by_password(port, "root", password, "cat /proc/cmdline");
    checks.that("nobody comes in by SSH before", come("x")?.code != 0);
    let password = open_help_access(vm, artifacts)?;
    let came = come(&password)?;
    checks.contains("what root sees over SSH", &came.said(), "nqrust.mode=install");
    checks.that("another password lets nobody in", come("abcd.efgh.jkmn.pqrs")?.code != 0);
    shell(vm, &password)?;
    screen(vm, &["Close help access"], SCREEN_LIMIT, artifacts)?;
    vm.serial.keys(&format!("{DOWN}\r"))?;
    screen(vm, &["Help access is closed."], SCREEN_LIMIT, artifacts)?;
    checks.that("nobody comes in by SSH afterwards", come(&password)?.code != 0);
    vm.serial.keys(&ESCAPE.to_string())?;
    screen(vm, &["names and servers"], SCREEN_LIMIT, artifacts)?;
    checks.contains("what was typed", &vm.serial.screen(), "node-q");
    checks.finish("help access")
}

/// Opens a shell on the console, which asks for the password, and leaves it.
fn shell(vm: &mut Vm, password: &str) -> Result<()> {
    root_shell(vm, password)?;
    vm.serial.send("exit")
}

#[test]
#[ignore = "an install and a boot: `make soak` runs it"]
fn an_install_by_keys_whose_disk_fails_leaves_logs_on_a_stick_and_goes_on() {
    scenario("console-serial", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_without_configuration(&identity)?;
        let disk = Disk::empty_raw(artifacts.disk("node.img"), ByteSize::gib(32))?;
        let stick = stick(&artifacts.disk("stick.img"))?;
        let fragile = FragileDisk::serve(&disk)?;
        let live = steps::node("install", Firmware::Bios, "").disk(&fragile.disk()).cdrom(&medium.full);
        let mut vm = live.start(artifacts)?;
        answer(&mut vm, &AnsweredMachine::first("node-s").screens(&identity), artifacts)?;
        vm.serial.wait_for_screen(&["Storing the container images"], steps::INSTALL_LIMIT)?;
        fragile.fails(true)?;
        screen(&mut vm, &["it has failed"], steps::INSTALL_LIMIT, artifacts)?;
        let failure = vm.serial.screen();
        fragile.fails(false)?;
        plug_in(&mut vm, &stick)?;
        take_logs_away(&mut vm, artifacts)?;
        vm.serial.keys("\r")?;
        screen(&mut vm, &["Install: progress"], SCREEN_LIMIT, artifacts)?;
        let end = screen(
            &mut vm,
            &["The installation is complete", "it has failed"],
            steps::INSTALL_LIMIT,
            artifacts,
        )?;
        if end != 0 {
            bail!("the second attempt failed too:\n{}", vm.serial.screen());
        }
        vm.serial.keys(&CTRL_F.to_string())?;
        screen(&mut vm, &["FAT \"LOGS\""], SCREEN_LIMIT, artifacts)?;
        vm.serial.keys("\r")?;
        screen(&mut vm, &["nqrust-config-node-s.yaml is on"], SCREEN_LIMIT, artifacts)?;
        vm.serial.keys("\r")?;
        vm.wait_for_exit(steps::SHUTDOWN_LIMIT).context("waiting for the reboot after the install")?;
        let mut checks = Checks::default();
        checks.contains("what failed", &failure, "A disk could not be read or written");
        look_at_stick(&stick, &mut checks, artifacts)?;
        drop(fragile);
        first_boot(&disk, "node-s", &identity, &mut checks, artifacts)?;
        checks.finish("an install whose disk failed")?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Saves the logs on the stick that is plugged in, and checks the short report.
fn take_logs_away(vm: &mut Vm, artifacts: &Artifacts) -> Result<()> {
    vm.serial.keys(&format!("{}\r", DOWN.repeat(3)))?;
    screen(vm, &["Where to?"], SCREEN_LIMIT, artifacts)?;
    // The kernel needs time to find a stick; the list is refreshed until it is there.
    Deadline::after(SCREEN_LIMIT).poll("the stick on the screen", || {
        vm.serial.keys(&CTRL_R.to_string())?;
        Ok(vm.serial.wait_for_screen(&["FAT \"LOGS\""], Duration::from_secs(10)).ok())
    })?;
    screen(vm, &["FAT \"LOGS\""], SCREEN_LIMIT, artifacts)?;
    vm.serial.keys("\r")?;
    screen(vm, &["report-"], SCREEN_LIMIT, artifacts)?;
    vm.serial.keys(&format!("{}\r", DOWN.repeat(4)))?;
    screen(vm, &["Install: short report"], SCREEN_LIMIT, artifacts)?;
    vm.serial.keys(&ESCAPE.to_string())?;
    screen(vm, &["Try again with the same answers"], SCREEN_LIMIT, artifacts).map(drop)
}

/// A stick of 64 MiB with one FAT volume.
fn stick(path: &Path) -> Result<std::path::PathBuf> {
    fs::File::create(path)?.set_len(64 << 20)?;
    let mut format = Command::new("mformat");
    format.arg("-i").arg(path).args(["-v", "LOGS", "::"]);
    programs::run(&mut format, steps::COMMAND_LIMIT)?.success("mformat")?;
    Ok(path.to_owned())
}

/// Checks that the stick has the logs of the failure and the answers, and that the answers are a valid configuration.
fn look_at_stick(stick: &Path, checks: &mut Checks, artifacts: &Artifacts) -> Result<()> {
    let files = artifacts.disk("from-stick");
    fs::create_dir_all(&files)?;
    let mut copy = Command::new("mcopy");
    copy.arg("-i").arg(stick).args(["-n", "::*"]).arg(&files);
    programs::run(&mut copy, steps::COMMAND_LIMIT)?.success("mcopy")?;
    let names = fs::read_dir(&files)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<_> = names.collect::<Result<_>>()?;
    let archive = names.iter().find(|name| name.starts_with("report-"));
    let archive = archive.with_context(|| format!("no report on the stick: {names:?}"))?;
    let mut list = Command::new("tar");
    list.arg("--extract").arg("--to-stdout").arg("--file").arg(files.join(archive));
    let report = programs::run(&mut list, steps::COMMAND_LIMIT)?.success("tar")?;
    // Searched for secrets with all other artifacts.
    artifacts.append("report.txt", &report)?;
    checks.contains("the report", &report, "/dev/vda");
    let configuration = files.join("nqrust-config-node-s.yaml");
    let mut validate = Command::new(paths::installer()?);
    validate.arg("validate").arg(&configuration);
    let said = programs::run(&mut validate, steps::COMMAND_LIMIT)?;
    checks.that(&format!("the answers are valid: {}", said.said()), said.code == 0);
    Ok(())
}

/// Starts the node and checks that it has the answers.
fn first_boot(
    disk: &Disk,
    name: &str,
    identity: &Identity,
    checks: &mut Checks,
    artifacts: &Artifacts,
) -> Result<()> {
    let node = steps::node("first-boot", Firmware::Bios, "").disk(disk);
    let (vm, ssh) = steps::boot(&node, identity, artifacts)?;
    checks.equal("the host name", ssh.run("hostname")?, name);
    let document = ssh.run(&format!("sudo -n grep -c 10.0.2.77 {NODE_DOCUMENT}"))?;
    checks.that("the node's document has the address of the cluster", document != "0");
    let logs = ssh.run(&format!("sudo -n sh -c 'cat {INSTALL_LOGS}/*'"))?;
    checks.contains(
        "the log of the install",
        &logs,
        "The OS image is already there, and is not written again",
    );
    steps::collect_logs(&ssh, artifacts, "first-boot")?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)
}
