//! Three machines become a cluster of upstream Kubernetes from one full ISO, without a network but their own, and are one again after each
//! was powered off.

use anyhow::{Context, Result, bail};
use model::architecture::Architecture;
use nqrust_tests::artifacts::{Artifacts, scenario_alone};
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::Checks;
use nqrust_tests::qemu::{Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::wire::Wire;
use nqrust_tests::{secrets, steps};
use serde_json::{Value, json};

use super::machines::{Machines, Member, MemberNetwork, VIP, is_ready, render};

pub(super) const MEMBERS: [Member; 3] = [
    Member::new("node-1", "management", 11),
    Member::new("node-2", "witness", 12),
    Member::new("node-3", "worker", 13),
];

/// On every medium of the default definition.
const IMAGE: &str = "localhost/nqrust/busybox:1";

pub(super) const KUBECTL: &str = "sudo -n kubectl --kubeconfig /etc/kubernetes/admin.conf";

#[test]
#[ignore = "three machines with Kubernetes at once: `make soak` runs it"]
fn three_machines_become_a_cluster_of_kubeadm_and_are_one_again_after_a_restart() {
    scenario_alone("cluster-kubeadm", |artifacts| {
        let identity = Identity::load()?;
        let (machines, disks) = installed(&MEMBERS, artifacts, &identity)?;
        for boot in ["first-boot", "restart"] {
            let mut booted = boot_all(&machines, &disks, boot, &|machine| machine, (&identity, artifacts))?;
            all_ready(&MEMBERS, &booted, boot, artifacts)?;
            let mut checks = Checks::default();
            for (member, (vm, ssh)) in MEMBERS.iter().zip(&mut booted) {
                check(member, ssh, &mut checks)?;
                vm.qmp.screendump(&artifacts.path(&format!("{}-{boot}.png", member.name)))?;
                steps::collect_logs(ssh, artifacts, &format!("{}-{boot}", member.name))?;
            }
            checks.finish("the nodes of the cluster")?;
            run_pod(&booted[0].1, &format!("pod-{boot}"), "node-3")?;
            for (vm, ssh) in booted {
                drop(ssh);
                vm.power_off(steps::SHUTDOWN_LIMIT)?;
            }
        }
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Installs every member from one ISO with its part of one cluster file, on a wire of their own; returns their machines and disks.
pub(super) fn installed(
    members: &'static [Member],
    artifacts: &Artifacts,
    identity: &Identity,
) -> Result<(Machines, Vec<Disk>)> {
    let medium = Medium::built_apart("kubernetes", medium::stage_kubernetes)?;
    installed_from(members, &|_| &medium, artifacts, identity)
}

/// As [`installed`], from the medium for the architecture of each.
pub(super) fn installed_from<'m>(
    members: &'static [Member],
    medium: &(dyn Fn(Architecture) -> &'m Medium + Sync),
    artifacts: &Artifacts,
    identity: &Identity,
) -> Result<(Machines, Vec<Disk>)> {
    let kubernetes = json!({ "distribution": "kubeadm", "timing": "relaxed" });
    let configurations = render(members, &kubernetes, artifacts, identity)?;
    let machines = Machines { members, network: MemberNetwork::IsolatedServers, wire: Wire::lay()? };
    let disks = machines.install(&configurations, medium, artifacts)?;
    Ok((machines, disks))
}

/// Starts all members with what `attach` adds to each, and logs in to each.
pub(super) fn boot_all(
    machines: &Machines,
    disks: &[Disk],
    boot: &str,
    attach: &dyn Fn(Machine) -> Machine,
    (identity, artifacts): (&Identity, &Artifacts),
) -> Result<Vec<(Vm, Ssh)>> {
    // A machine ends with the thread that started it.
    let start = |(member, disk): (&Member, &Disk)| {
        let machine = machines.machine(member, boot)?.disk(disk);
        let machine = if member.role == "management" { machine.control_plane() } else { machine };
        attach(machine).start(artifacts)
    };
    let started = machines.members.iter().zip(disks).map(start).collect::<Result<Vec<_>>>()?;
    let log_in = |mut vm: Vm| {
        let ssh = steps::log_in(&mut vm, identity, artifacts)?;
        Ok((vm, ssh))
    };
    started.into_iter().map(log_in).collect()
}

/// As [`wait_until_ready`], by the first of the machines; keeps the logs of all where they do not get there.
pub(super) fn all_ready(
    members: &[Member],
    booted: &[(Vm, Ssh)],
    boot: &str,
    artifacts: &Artifacts,
) -> Result<()> {
    let (_, first) = booted.first().context("a machine")?;
    let ready = wait_until_ready(first, members);
    if ready.is_err() {
        // The reasons are in their journals, not on the screens.
        for (member, (_, ssh)) in members.iter().zip(booted) {
            let _ = steps::collect_logs(ssh, artifacts, &format!("{}-{boot}-not-ready", member.name));
        }
    }
    ready
}

/// Waits until the API lists every member as Ready and as what it shall be; nodes of before a restart are Ready for some time
/// without being it, so their kubelets have to have said so since.
pub(super) fn wait_until_ready(ssh: &Ssh, members: &[Member]) -> Result<()> {
    let since = ssh.run("date --utc +%Y-%m-%dT%H:%M:%SZ")?;
    let renewed = |member: &Member, leases: &Value| {
        let lease =
            leases["items"].as_array()?.iter().find(|lease| lease["metadata"]["name"] == member.name)?;
        Some(lease["spec"]["renewTime"].as_str()? > since.trim())
    };
    let list = |what: &str| -> Result<Value> {
        let listed = ssh.run(&format!("{KUBECTL} get {what} --output json || true"))?;
        Ok(serde_json::from_str(&listed).unwrap_or_default())
    };
    let ready = || {
        let (nodes, leases) = (list("nodes")?, list("leases --namespace kube-node-lease")?);
        let nodes = nodes["items"].as_array().cloned().unwrap_or_default();
        let node = |member: &Member| nodes.iter().find(|node| node["metadata"]["name"] == member.name);
        let is = |member: &Member| {
            node(member).is_some_and(|node| is_ready(node, member)) && renewed(member, &leases) == Some(true)
        };
        Ok(members.iter().all(is).then_some(()))
    };
    Deadline::after(steps::READY_LIMIT).every(MACHINE_INTERVAL).poll("all nodes that are Ready", ready)
}

pub(super) fn check(member: &Member, ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let name = member.name;
    let management = member.role == "management";
    // A kubelet is Ready before a witness is a member of etcd and has forgotten the keys for that.
    steps::await_ready(ssh).with_context(|| format!("the status of {name}"))?;
    let addresses = ssh.run("ip -4 -brief address show dev mgmt-br")?;
    checks.contains(&format!("{name}: the bridge"), &addresses, &format!("{}/24", member.address()));
    let has_vip = addresses.contains(&format!("{VIP}/32"));
    checks.equal(&format!("{name}: has the virtual address"), has_vip, management);
    // The authorities' keys are where certificates are made, and nowhere else.
    let has_key = ssh.succeeds("sudo -n test -e /etc/kubernetes/pki/ca.key")?;
    checks.equal(&format!("{name}: has the authority's key"), has_key, management);
    let is_member = ssh.succeeds("sudo -n test -d /var/lib/etcd/member")?;
    checks.equal(&format!("{name}: is a member of etcd"), is_member, member.role != "worker");
    Ok(())
}

/// Runs a pod of a preloaded image on the node `on` and reads what it says.
pub(super) fn run_pod(ssh: &Ssh, name: &str, on: &str) -> Result<()> {
    let overrides = json!({ "spec": { "nodeSelector": { "kubernetes.io/hostname": on } } });
    ssh.run(&format!(
        "{KUBECTL} run {name} --image {IMAGE} --image-pull-policy Never --restart Never --overrides '{overrides}' \
         --command -- /bin/busybox echo it-runs"
    ))?;
    let phase = || {
        let phase = ssh.run(&format!("{KUBECTL} get pod {name} --output jsonpath={{.status.phase}}"))?;
        match phase.trim() {
            "Succeeded" => Ok(Some(())),
            "Failed" => bail!("{}", ssh.run(&format!("{KUBECTL} describe pod {name}"))?),
            _ => Ok(None),
        }
    };
    Deadline::after(steps::READY_LIMIT).every(MACHINE_INTERVAL).poll("a pod of a preloaded image", phase)?;
    let said = ssh.run(&format!("{KUBECTL} logs {name}"))?;
    if said.trim() != "it-runs" {
        bail!("the pod {name} said {said:?}");
    }
    Ok(())
}
