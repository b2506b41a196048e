//! The only server of a cluster gets a release whose kubelet dies. It goes back when the time is up in which a release has to be good, says
//! that it was the kubelet, to its cluster too, and is Ready again.

use std::time::Duration;

use anyhow::Context;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::identity::Identity;
use nqrust_tests::node::Checks;
use nqrust_tests::qemu::Machine;
use nqrust_tests::updates::{CURRENT, NEXT, UPDATE_LIMIT, awaited, restarted_where, running, slot};
use nqrust_tests::{secrets, steps};
use serde_json::Value;

use super::kubeadm::{KUBECTL, boot_all, installed, wait_until_ready};
use super::machines::Member;
use super::rollout::release;
use crate::broken_release::{TOLD_LIMIT, drop_in};

const MEMBERS: [Member; 1] = [Member::new("node-1", "management", 11)];

/// The drive with the release.
const BROKEN: &str = "/dev/disk/by-label/NQRUST_HYPERVISOR_1000_0_0";
/// Its kubelet is killed as soon as it runs, and started again by systemd, without an end.
const DIES: &str = "[Service]\nExecStartPost=/bin/sh -c 'kill -KILL $MAINPID'\n";

/// For staging, two restarts, and the 15 minutes in between.
const TRIAL_LIMIT: Duration = Duration::from_secs(2700);
/// For the node to tell its cluster, which starts with it.
const REPORT_LIMIT: Duration = Duration::from_secs(600);

#[test]
#[ignore = "a machine with Kubernetes, and the 15 minutes that a release has: `make soak` runs it"]
fn a_release_whose_kubelet_dies_gives_way_to_the_one_before() {
    scenario("broken-kubelet", |artifacts| {
        let identity = Identity::load()?;
        let broken = release(NEXT, &[&drop_in("kubelet.service", DIES)])?;
        let (machines, disks) = installed(&MEMBERS, artifacts, &identity)?;
        let attach = |machine: Machine| machine.cdrom(&broken.full).reboots();
        let tools = (&identity, artifacts);
        let booted = boot_all(&machines, &disks, "node", &attach, tools)?;
        let (mut vm, mut ssh) = booted.into_iter().next().context("the machine")?;
        wait_until_ready(&ssh, &MEMBERS)?;
        awaited(&ssh, UPDATE_LIMIT, "a first boot that is good", |told| told["state"] == "idle")?;

        let apply = format!("sudo -n installer update apply --from {BROKEN}");
        let wanted = ("the release before", TRIAL_LIMIT);
        ssh = restarted_where(&mut vm, &ssh, &apply, tools, wanted, |ssh| Ok(running(ssh)? == "a"))?;
        let status = awaited(&ssh, TOLD_LIMIT, "the verdict", |told| told["state"] == "rolled-back")?;
        let reason = status["reason"].as_str().unwrap_or_default();
        artifacts.append("reasons.txt", &format!("{reason}\n"))?;
        let mut checks = Checks::default();
        checks.contains("the reason", reason, "kubelet: ");
        checks.equal("the release is bad", slot(&status, "b").1, "bad".to_owned());
        checks.equal("it is not tried again by itself", ssh.attempt(&apply, UPDATE_LIMIT)?.code, 9);

        wait_until_ready(&ssh, &MEMBERS)?;
        let told =
            Deadline::after(REPORT_LIMIT).every(MACHINE_INTERVAL).poll("the report of the node", || {
                let node = ssh.run(&format!("{KUBECTL} get node node-1 --output json || true"))?;
                let node: Value = serde_json::from_str(&node).unwrap_or_default();
                let told = node["metadata"]["annotations"].clone();
                Ok((told["nqrust.io/update-state"] == "rolled-back").then_some(told))
            })?;
        checks.equal(
            "the release that the cluster knows of",
            told["nqrust.io/os-version"].as_str(),
            Some(CURRENT),
        );
        awaited(&ssh, UPDATE_LIMIT, "the release before is good", |told| slot(told, "a").1 == "good")?;
        steps::collect_logs(&ssh, artifacts, "node-1")?;
        checks.finish("the release whose kubelet dies")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}
