//! A cluster whose nodes get an OS with the next minor version of Kubernetes: the version that ran goes on under it, until a step of its
//! own moves one node after the other. Somebody writes to the API once a second all the while.

use std::fs;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use cluster::rollout::lock::{NAME, NAMESPACE};
use model::kubernetes::KubernetesVersion;
use nqrust_tests::deadline::Deadline;
use nqrust_tests::native_cluster::{KubernetesRelease, NativeNode, TestCluster};
use nqrust_tests::node::Checks;
use nqrust_tests::programs;
use serde_json::{Value, json};

use super::figures::Figures;
use super::rollout::holder;
use super::writes;

const STEP: &str = env!("CARGO_BIN_EXE_kubernetes_step");
/// For the step on one node: pods of the control plane start again, and the node has to be healthy.
const STEP_LIMIT: Duration = Duration::from_secs(900);
/// Until kubeadm is at work, and from then until the power is cut.
const KUBEADM_LIMIT: Duration = Duration::from_secs(120);
const CUT_AFTER: Duration = Duration::from_secs(5);
/// Servers, the witness, workers.
const ORDER: [&str; 4] = ["node-1", "node-2", "node-3", "node-4"];

pub(super) fn check(cluster: &mut TestCluster, figures: &mut Figures<'_>) -> Result<()> {
    let before = KubernetesRelease::built_before()?;
    let next = KubernetesRelease::built()?;
    ensure!(next.version > before.version, "{} follows {}", next.version, before.version);
    figures.say(&format!("from {} to {}", before.version, next.version))?;
    cluster.create(&mut |part| figures.done(part))?;
    cluster.join_all(&["node-4", "node-2", "node-3"], &mut |part| figures.done(part))?;
    let writer = writes::begin(cluster, figures.path("writes.txt"));

    cluster.change_os(next.clone())?;
    for name in ORDER {
        start_under_the_new_os(cluster, name)?;
        ensure!(kubelet(cluster, name)? == before.version, "an OS update moves no Kubernetes: {name}");
        figures.done(&format!("{name} has the new OS, and {} as before", before.version))?;
    }
    ensure!(api_server(cluster)? == before.version);

    let (code, told) = step(cluster, "node-4", "move")?;
    ensure!(code == 3 && told.contains("API server"), "a worker waits for the servers: {code} {told}");
    let (code, told) = step(cluster, "node-3", "move")?;
    ensure!(code == 3 && told.contains("API server"), "a witness waits for the servers: {code} {told}");
    another_node_has_its_turn(cluster)?;
    // The second server loses its power meanwhile, and goes on.
    for name in ORDER {
        if name == "node-2" {
            cut_off_in_the_step(cluster, name)?;
            ensure!(holder(cluster)? == name, "a node that is half moved keeps the lock");
            figures.done(&format!("{name} has lost its power in the step, and is back"))?;
        }
        let (code, told) = step(cluster, name, "move")?;
        ensure!(code == 0, "{name}: {code} {told}");
        ensure!(kubelet(cluster, name)? == next.version, "{name}: {told}");
        ensure!(holder(cluster)?.is_null(), "{name} has not given the lock back");
        figures.done(&format!("{name} runs {}", next.version))?;
        let (code, told) = step(cluster, name, "move")?;
        ensure!(code == 0 && told.contains("nothing to do"), "{name}: {code} {told}");
    }
    writes::end(writer, figures)?;

    let mut checks = Checks::default();
    checks.equal("the version of the API", api_server(cluster)?, next.version.clone());
    let etcd = next.images()?.etcd.to_string();
    for name in ["node-1", "node-2", "node-3"] {
        let manifest = cluster.node(name)?.run("cat /etc/kubernetes/manifests/etcd.yaml")?;
        checks.contains(&format!("etcd of {name}"), &manifest, &etcd);
    }
    checks.equal(
        "the members of etcd that vote",
        cluster.voters("node-3")?,
        ["node-1", "node-2", "node-3"].map(str::to_owned).to_vec(),
    );
    for name in ["node-1", "node-2", "node-3"] {
        let snapshots = cluster.node(name)?.run("ls -s /var/lib/nqrust/kubernetes/snapshots")?;
        let expected = format!("{}-before-{}.db", before.version, next.version);
        checks.contains(&format!("the snapshot of {name}"), &snapshots, &expected);
    }
    for name in ORDER {
        let kept = cluster.node(name)?.run("ls /var/lib/nqrust/kubernetes/versions")?;
        checks.equal(&format!("what {name} keeps"), kept.trim(), format!("current\n{}", next.version));
    }
    checks.finish("the move to the next version")?;
    super::traffic::check(cluster)?;
    figures.done("pods and their service reach each other")?;
    back_to_the_old_os(cluster, &before, &next, figures)
}

/// A server waits for the lock that another node has, and changes nothing.
fn another_node_has_its_turn(cluster: &TestCluster) -> Result<()> {
    let now = cluster.node("node-1")?.run("date --utc +%Y-%m-%dT%H:%M:%S.000000Z")?;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": NAME, "namespace": NAMESPACE },
        "spec": { "holderIdentity": "node-2", "leaseDurationSeconds": 600, "renewTime": now.trim() },
    });
    cluster.kubectl().apply(&lease)?;
    let (code, told) = step(cluster, "node-1", "move")?;
    ensure!(code == 8 && told.contains("node-2 is being updated"), "node-1: {code} {told}");
    cluster.kubectl().run(&["delete", "lease", NAME, "--namespace", NAMESPACE]).map(drop)
}

/// The OS goes back, Kubernetes stays; and where its programs are lost, the older ones of the OS do not start on newer data.
fn back_to_the_old_os(
    cluster: &mut TestCluster,
    before: &KubernetesRelease,
    next: &KubernetesRelease,
    figures: &mut Figures<'_>,
) -> Result<()> {
    cluster.change_os(before.clone())?;
    start_under_the_new_os(cluster, "node-2")?;
    ensure!(kubelet(cluster, "node-2")? == next.version, "an OS that goes back moves no Kubernetes");
    figures.done(&format!("node-2 has the OS of before, and {}", next.version))?;
    cluster.cut_off("node-2")?;
    let program = format!("var/lib/nqrust/kubernetes/versions/{}/usr/local/bin/kubelet", next.version);
    let program = fs::File::options().write(true).open(cluster.place("node-2")?.directory.join(program))?;
    program.write_all_at(b"x", 4096)?;
    cluster.switch_on("node-2")?;
    let (_, told) = step(cluster, "node-2", "mount")?;
    ensure!(told.contains("cannot be used"), "{told}");
    let node = cluster.node("node-2")?;
    node.start_units()?;
    Deadline::after(Duration::from_secs(30))
        .poll("the refusal of the guard", || Ok(node.log("kubelet").contains("older than").then_some(())))?;
    let status = node.status()?;
    ensure!(status.contains("NOT STARTED"), "{status}");
    ensure!(!node.succeeds("pgrep -x kubelet"), "the kubelet of before runs");
    figures.done("a node that has lost its version starts no older one")
}

/// The program of [`STEP`] on a node, whose `/var` is a directory of this host.
const STEP_PLACE: &str = "/var/kubernetes_step";

/// An update of the OS: it keeps the running Kubernetes, and the node starts with the cluster's present image.
fn start_under_the_new_os(cluster: &mut TestCluster, name: &str) -> Result<()> {
    let place = cluster.place(name)?.directory.join("var/kubernetes_step");
    fs::copy(STEP, &place).with_context(|| format!("copying {STEP}"))?;
    let (code, told) = step(cluster, name, "keep")?;
    ensure!(code == 0, "{name}: {told}");
    start_again(cluster, name)
}

/// Cuts the power of a node, and starts it with the image that the cluster has by now; its own version of Kubernetes goes on.
fn start_again(cluster: &mut TestCluster, name: &str) -> Result<()> {
    cluster.start_again(name, &|node| {
        let (code, told) = step_on(node, "mount")?;
        ensure!(code == 0 && told.trim().is_empty(), "{name}: {told}");
        Ok(())
    })
}

fn step(cluster: &TestCluster, name: &str, what: &str) -> Result<(i32, String)> {
    step_on(cluster.node(name)?, what)
}

fn step_on(node: &NativeNode, what: &str) -> Result<(i32, String)> {
    let mut command = node.command("sh");
    let ended = programs::run(command.args(["-c", &format!("{STEP_PLACE} {what}")]), STEP_LIMIT)?;
    Ok((ended.code, ended.said()))
}

/// Begins the step and cuts the power of the node while kubeadm is at work.
fn cut_off_in_the_step(cluster: &mut TestCluster, name: &str) -> Result<()> {
    let log = "/var/lib/nqrust/step.log";
    let node = cluster.node(name)?;
    node.run(&format!("{STEP_PLACE} move >{log} 2>&1 &"))?;
    let said = || node.run(&format!("cat {log}"));
    Deadline::after(KUBEADM_LIMIT)
        .poll("kubeadm at work", || Ok(said()?.ends_with("(3 of 8)\n").then_some(())))?;
    thread::sleep(CUT_AFTER);
    let said = said()?;
    ensure!(said.ends_with("(3 of 8)\n"), "the step was cut off elsewhere: {said}");
    start_again(cluster, name)
}

fn kubelet(cluster: &TestCluster, name: &str) -> Result<KubernetesVersion> {
    let node = cluster.kubectl().get(&["node", name])?;
    let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default();
    version.parse().with_context(|| format!("the kubelet of {name}: {version:?}"))
}

fn api_server(cluster: &TestCluster) -> Result<KubernetesVersion> {
    let told: Value = serde_json::from_str(&cluster.kubectl().run(&["version", "--output", "json"])?)?;
    let version = told["serverVersion"]["gitVersion"].as_str().unwrap_or_default();
    version.parse().with_context(|| format!("the API server: {version:?}"))
}
