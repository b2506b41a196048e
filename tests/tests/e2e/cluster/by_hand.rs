//! A person makes a cluster of upstream Kubernetes without any document: creates it at the console of one machine, and joins it from
//! another, with the token typed.

use anyhow::{Context, Result, bail};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario_alone};
use nqrust_tests::console::{CTRL_N, SCREEN_LIMIT, picture, screen};
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::{Identity, USER};
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::wire::Wire;
use nqrust_tests::{secrets, steps};

use super::kubeadm::KUBECTL;
use super::machines::{Member, VIP};
use crate::questions::{AnsweredMachine, ScreenKeys, answer};

const FIRST: Member = Member::new("node-1", "management", 11);
const SECOND: Member = Member::new("node-2", "worker", 12);
/// No machine has these addresses.
const GATEWAY: &str = "10.77.0.1";
const NAME_SERVER: &str = "10.77.0.53";

#[test]
#[ignore = "two machines with Kubernetes: `make soak` runs it"]
fn a_cluster_of_kubeadm_is_created_and_joined_by_the_questions() {
    scenario_alone("cluster-by-hand", |artifacts| {
        let identity = Identity::load()?;
        let medium = Medium::built_apart("kubernetes", medium::stage_kubernetes)?;
        let wire = Wire::lay()?;
        let machine = |member: &Member, purpose: &str| {
            let name = format!("{}-{purpose}", member.name);
            Machine::new(&name, Firmware::Uefi).memory(ByteSize::gib(4)).wire(&member.mac(), &wire)
        };
        let install = |member: &Member, screens: ScreenKeys| -> Result<Disk> {
            let disk = Disk::empty(artifacts.disk(&format!("{}.qcow2", member.name)), ByteSize::gib(32))?;
            let live = machine(member, "install")?.disk(&disk).cdrom(&medium.full);
            by_keys(&live, &screens, artifacts).with_context(|| format!("installing {}", member.name))?;
            Ok(disk)
        };
        let start = |member: &Member, disk: &Disk| -> Result<Vm> {
            let node = machine(member, "boot")?.disk(disk);
            let node = if member.role == FIRST.role { node.control_plane() } else { node };
            let mut vm = node.start(artifacts)?;
            steps::expect(&mut vm, " login: ", steps::BOOT_LIMIT).context("booting the node")?;
            vm.serial.login(USER, &identity.password, steps::COMMAND_LIMIT)?;
            Ok(vm)
        };

        // The token is what a person would choose; the fields after it stay empty.
        let cluster = format!("{VIP}\t{}{CTRL_N}", identity.token);
        let create = AnsweredMachine::creating(FIRST.name, cluster);
        let disk = install(&FIRST, at(create, &FIRST).screens(&identity))?;
        let mut first = start(&FIRST, &disk)?;
        until_ready(&mut first, &FIRST)?;
        let join = AnsweredMachine::joining(SECOND.name, VIP, &identity.token);
        let disk = install(&SECOND, at(join, &SECOND).screens(&identity))?;
        let mut second = start(&SECOND, &disk)?;
        until_ready(&mut second, &SECOND)?;
        for (vm, member) in [(&mut first, &FIRST), (&mut second, &SECOND)] {
            picture(vm, member.name, artifacts)?;
        }
        let nodes = first.serial.run(&format!("{KUBECTL} get nodes --no-headers"), steps::COMMAND_LIMIT)?;
        artifacts.append("nodes.txt", &nodes.text)?;
        let ready = |member: &Member| {
            let mut lines = nodes.text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines.any(|line| line.first() == Some(&member.name) && line.get(1) == Some(&"Ready"))
        };
        if !ready(&FIRST) || !ready(&SECOND) {
            bail!("the cluster's nodes are not these two, both Ready:\n{}", nodes.text);
        }
        second.power_off(steps::SHUTDOWN_LIMIT)?;
        first.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

fn at<'a>(machine: AnsweredMachine<'a>, member: &Member) -> AnsweredMachine<'a> {
    machine.at(&member.address(), GATEWAY, NAME_SERVER)
}

/// Answers all questions, and waits for the end of the install.
fn by_keys(live: &Machine, screens: &[(&'static str, String)], artifacts: &Artifacts) -> Result<()> {
    let mut vm = live.start(artifacts)?;
    answer(&mut vm, screens, artifacts)?;
    let ends = ["The installation is complete", "it has failed"];
    if screen(&mut vm, &ends, steps::INSTALL_LIMIT, artifacts)? == 1 {
        bail!("the install has failed:\n{}", vm.serial.screen());
    }
    vm.serial.keys("\r")?;
    vm.wait_for_exit(steps::SHUTDOWN_LIMIT).context("waiting for the reboot after the install").map(drop)
}

/// Waits until the node reports that it is ready.
fn until_ready(vm: &mut Vm, member: &Member) -> Result<()> {
    let mut last = String::new();
    let ready =
        Deadline::after(steps::READY_LIMIT).every(MACHINE_INTERVAL).poll("a node that is ready", || {
            last = vm.serial.run("sudo -n installer status", SCREEN_LIMIT)?.text;
            Ok(last.contains(steps::TOLD_READY).then_some(()))
        });
    ready.with_context(|| format!("{} said last:\n{last}", member.name))
}
