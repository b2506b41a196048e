//! Clusters of three machines, each installed from one ISO with the configurations that `installer render` makes from one
//! cluster file: here of K3s or RKE2, in [`kubeadm`] of upstream Kubernetes. In [`by_hand`] a person
//! makes one at the consoles of two machines; in [`both_architectures`] a worker has another processor; in [`rollout`] one is updated, and in [`unhealthy_release`] a release is not good for one.
//!
//! The ISO contains a distribution. Without a real one it is a stand-in program that records how it was started, and
//! the test ends where Kubernetes would begin; with a real one (`NQRUST_K3S_BINARY` or `NQRUST_RKE2_DIR`, see
//! `distribution`) it goes on until every node is Ready. Then only the build, and nodes whose images are not on the
//! medium, need a network.

mod both_architectures;
mod by_hand;
mod kubeadm;
mod machines;
mod rollout;
mod unhealthy_release;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::size::ByteSize;
use model::config::Distribution;
use nqrust_tests::artifacts::{scenario, scenario_alone};
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::disk::Disk;
use nqrust_tests::distribution;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium;
use nqrust_tests::node::{Checks, Document, MAC};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::wire::Wire;
use nqrust_tests::{secrets, steps};
use serde_json::{Value, json};
use testing::supervisor::{Authorities, Supervisor, SupervisorBehavior};

use self::machines::{Machines, Member, MemberNetwork, VIP, is_ready};
use crate::bad_input::refused_in_vm;

/// The time limit for pods of a real distribution to start, under emulation.
const READY: Duration = Duration::from_secs(1800);

const MEMBERS: [Member; 3] = [
    Member::new("node-1", "management", 11),
    Member::new("node-2", "management", 12),
    Member::new("node-3", "witness", 13),
];

/// Images of a real distribution come from their registries.
fn network() -> MemberNetwork {
    match distribution::real() {
        Some(_) => MemberNetwork::Outside,
        None => MemberNetwork::Isolated,
    }
}

#[test]
#[ignore = "three machines at once: `make soak` runs it"]
fn three_machines_of_a_cluster_file_become_its_nodes() {
    scenario_alone("cluster", |artifacts| {
        let identity = Identity::load()?;
        let kubernetes = json!({ "distribution": distribution::distribution().name() });
        let nodes = machines::render(&MEMBERS, &kubernetes, artifacts, &identity)?;
        let machines = Machines { members: &MEMBERS, network: network(), wire: Wire::lay()? };
        let medium = steps::medium_with_distribution()?;
        let disks = machines.install(&nodes, &|_| &medium, artifacts)?;
        // A machine ends with the thread that started it.
        let start =
            |(member, disk): (&Member, &Disk)| machines.machine(member, "boot")?.disk(disk).start(artifacts);
        let started = MEMBERS.iter().zip(&disks).map(start).collect::<Result<Vec<_>>>()?;
        let log_in = |mut vm: Vm| -> Result<_> {
            let ssh = steps::log_in(&mut vm, &identity, artifacts)?;
            Ok((vm, ssh))
        };
        let booted = started.into_iter().map(log_in).collect::<Result<Vec<_>>>()?;
        let mut checks = Checks::default();
        for (member, (_, ssh)) in MEMBERS.iter().zip(&booted) {
            check(member, ssh, &mut checks)?;
            steps::collect_logs(ssh, artifacts, member.name)?;
        }
        checks.finish("the nodes of the cluster")?;
        match distribution::real() {
            Some(_) => wait_until_ready(&booted[0].1)?,
            None => eprintln!(
                "skipped: nodes become Ready (neither NQRUST_K3S_BINARY nor NQRUST_RKE2_DIR is set)"
            ),
        }
        for (vm, ssh) in booted {
            drop(ssh);
            vm.power_off(steps::SHUTDOWN_LIMIT)?;
        }
        secrets::search(&medium::logs("cluster"), &identity)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

#[test]
fn a_token_that_the_cluster_refuses_ends_an_install_before_the_disk_is_touched() {
    scenario("join-refused", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium(&identity)?;
        let authorities = Authorities::make(&artifacts.disk("authorities"))?;
        let manner = SupervisorBehavior {
            server_token: "another".into(),
            agent_token: "another".into(),
            ..SupervisorBehavior::default()
        };
        let address = SocketAddr::from(([127, 0, 0, 1], Distribution::Rke2.supervisor_port()));
        let cluster = Supervisor::start_on(address, &authorities, manner)?;
        let mut document = Document { role: "worker", ..Document::new("node-b") }.to_json(&identity);
        // In the machine's user network, this address is the host.
        document["server_url"] = "https://10.0.2.2".into();
        document["install"]["skipchecks"] = false.into();
        let volume = steps::configuration_volume("node-b", document.to_string().as_bytes(), artifacts)?;
        let live = Machine::new("join-refused", Firmware::Bios).network(MAC);
        let attach = |live: Machine| live.disk(&volume).cdrom(&medium.full);
        refused_in_vm("join-refused", live, &attach, ByteSize::gib(32), &["join-token"], artifacts)?;
        let mut checks = Checks::default();
        let asked = cluster.asked();
        let harmless = |request: &String| request.starts_with("GET ") || request.starts_with("HEAD ");
        checks.that(&format!("the cluster was asked: {asked:?}"), !asked.is_empty());
        checks.that(&format!("nothing was to change it: {asked:?}"), asked.iter().all(harmless));
        checks.finish("joining")?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Checks a member after its first boot.
fn check(member: &Member, ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let name = member.name;
    checks.equal(&format!("{name}: the name"), ssh.run("hostname")?.trim(), name);
    let addresses = ssh.run("ip -4 -brief address show dev mgmt-br")?;
    checks.contains(&format!("{name}: the bridge"), &addresses, &format!("{}/24", member.address()));
    let port =
        ssh.run("cat /sys/class/net/mgmt-bo/bonding/slaves; readlink /sys/class/net/mgmt-bo/brport/bridge")?;
    checks.contains(&format!("{name}: the bond is a port of the bridge"), &port, "mgmt-br");
    let slave = ssh.run("cat /sys/class/net/$(cat /sys/class/net/mgmt-bo/bonding/slaves)/address")?;
    checks.equal(&format!("{name}: the card of the bond"), slave.trim(), member.mac());
    for other in MEMBERS.iter().filter(|other| other.name != name) {
        let ping = format!("ping -c 2 -W 5 -I mgmt-br {}", other.address());
        checks.that(&format!("{name} reaches {}", other.name), ssh.succeeds(&ping)?);
    }
    let kind = distribution::distribution().name();
    let vip = format!("/var/lib/rancher/{kind}/agent/pod-manifests/nqrust-vip.yaml");
    let has_vip = ssh.succeeds(&format!("sudo -n grep -q {VIP} {vip}"))?;
    checks.equal(
        &format!("{name}: the manifest of the virtual address"),
        has_vip,
        member.role == "management",
    );
    check_service(member, ssh, checks)
}

/// Checks that the distribution was started with the member's role.
fn check_service(member: &Member, ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let name = member.name;
    let (server, agent) = match distribution::distribution() {
        Distribution::Rke2 => ("rke2-server", "rke2-agent"),
        Distribution::K3s => ("k3s", "k3s-agent"),
        Distribution::Kubeadm => bail!("this cluster is one of K3s or RKE2"),
    };
    let states = ssh.run(&format!(
        "systemctl is-enabled {agent} || true; systemctl show --value -p ActiveState {server}"
    ))?;
    checks.contains(&format!("{name}: the agent"), &states, "masked");
    checks.that(
        &format!("{name}: the server runs: {states:?}"),
        states.lines().any(|state| ["active", "activating"].contains(&state)),
    );
    if distribution::real().is_some() {
        return Ok(());
    }
    let arguments = ssh.run(&format!("sudo -n cat {}", distribution::ARGUMENTS))?;
    checks.equal(&format!("{name}: the arguments"), arguments.trim(), "server");
    // The output of a session is kept in its log, which must not contain the token.
    let show = "sudo -n sed 's/\"token\": \"[^\"]*\"/\"token\": \"[hidden]\"/'";
    let configuration = ssh.run(&format!("{show} /etc/rancher/k3s/config.yaml.d/90-nqrust-cluster.yaml"))?;
    let configuration: Value = serde_json::from_str(&configuration).context("the cluster's configuration")?;
    let first = name == MEMBERS[0].name;
    checks.equal(&format!("{name} begins the cluster"), configuration.get("cluster-init").is_some(), first);
    let server = (!first).then(|| format!("https://{VIP}:6443"));
    let said = configuration.get("server").and_then(Value::as_str).map(str::to_owned);
    checks.equal(&format!("{name}: the server to join"), said, server);
    let witness = configuration.get("disable-apiserver").is_some();
    checks.equal(&format!("{name} has no API server"), witness, member.role == "witness");
    let release = ssh.run("k3s --version")?;
    checks.contains(&format!("{name}: the release"), &release, &distribution::version()?);
    Ok(())
}

/// Waits until the API lists every member as Ready, with the label of its role, and a witness with its taint.
fn wait_until_ready(ssh: &Ssh) -> Result<()> {
    let kubectl = match distribution::distribution() {
        Distribution::Rke2 => "/var/lib/rancher/rke2/bin/kubectl --kubeconfig /etc/rancher/rke2/rke2.yaml",
        Distribution::K3s => "k3s kubectl",
        Distribution::Kubeadm => bail!("this cluster is one of K3s or RKE2"),
    };
    let ready = || -> Result<Option<()>> {
        let listed = ssh.run(&format!("sudo -n {kubectl} get nodes --output json || true"))?;
        let listed: Value = serde_json::from_str(&listed).unwrap_or_default();
        let nodes = listed["items"].as_array().cloned().unwrap_or_default();
        let node = |member: &Member| nodes.iter().find(|node| node["metadata"]["name"] == member.name);
        Ok(MEMBERS.iter().all(|member| node(member).is_some_and(|node| is_ready(node, member))).then_some(()))
    };
    Deadline::after(READY).every(MACHINE_INTERVAL).poll("three nodes that are Ready", ready)
}

#[test]
fn a_node_counts_as_ready_only_in_its_role() {
    let node = |status: &str, taints: Value| {
        json!({
            "metadata": { "name": "node-3", "labels": { "node-role.harvesterhci.io/witness": "true" } },
            "status": { "conditions": [{ "type": "DiskPressure", "status": "False" }, { "type": "Ready", "status": status }] },
            "spec": { "taints": taints },
        })
    };
    let taint = json!([{ "key": "node-role.kubernetes.io/etcd", "value": "true", "effect": "NoExecute" }]);
    let [first, _, witness] = &MEMBERS;
    assert!(is_ready(&node("True", taint.clone()), witness));
    assert!(!is_ready(&node("Unknown", taint.clone()), witness));
    assert!(!is_ready(&node("True", Value::Null), witness));
    assert!(!is_ready(&node("True", taint), first));
}
