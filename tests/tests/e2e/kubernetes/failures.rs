//! A management node is lost, and comes back as a new one; then all lose their power at once.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::native_cluster::{TestCluster, is_ready};

use super::figures::Figures;

/// Until somebody else answers for the virtual address and takes a write. The documentation says about four seconds.
const TAKEN_OVER: Duration = Duration::from_secs(30);
/// Until the cluster notices that a node is gone.
const NOTICED: Duration = Duration::from_secs(120);

/// Until a step of a join is told.
const BEGUN: Duration = Duration::from_secs(60);
/// A step of a join, before the one in which etcd takes the node for a member.
const BREAKING_OFF: &str = "Starting the kubelet";
/// An address that no node has.
const MOVED: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 41);

/// Cuts the power of the node that answers for the virtual address, and writes. Returns its name.
pub(super) fn lose_holder(cluster: &mut TestCluster, figures: &mut Figures<'_>) -> Result<String> {
    let lost = cluster.holder()?;
    cluster.write("before")?;
    figures.say(&format!("{lost} answers for the virtual address"))?;
    let begun = Instant::now();
    cluster.cut_off(&lost)?;
    Deadline::after(TAKEN_OVER)
        .poll("a write without the lost node", || Ok(cluster.write("without").ok()))?;
    figures
        .say(&format!("{:.1} s from the power cut to the first good write", begun.elapsed().as_secs_f64()))?;
    let holder = cluster.holder()?;
    ensure!(holder != lost, "{lost} is off and still holds the address");
    let kept = cluster.kubectl().get(&["configmap", "before"])?;
    ensure!(kept["data"]["written"] == "before", "what was written before is {kept}");
    figures.done("the virtual address has moved")?;
    Ok(lost)
}

/// Installs the lost node again; another one is the one that has created the cluster now.
pub(super) fn install_again(cluster: &mut TestCluster, lost: &str, figures: &mut Figures<'_>) -> Result<()> {
    Deadline::after(NOTICED).every(CLUSTER_INTERVAL).poll("the loss of a node being noticed", || {
        let nodes = cluster.kubectl().list(&["nodes"]);
        let gone = nodes.iter().any(|node| node["metadata"]["name"] == lost && !is_ready(node));
        Ok(gone.then_some(()))
    })?;
    figures.done("the cluster has noticed the loss")?;
    super::traffic::check_name(cluster, "node-4").context("names without the lost node")?;
    figures.done("pods find names without the lost node")?;
    let other = if lost == "node-1" { "node-2" } else { "node-1" };
    cluster.render(other)?;
    cluster.install(lost)?;
    figures.done(&format!("{lost} is installed again"))?;
    let before = cluster.voters("node-3")?;
    ensure!(before == ["node-1", "node-2", "node-3"], "etcd counted {before:?} before the node came back");
    cluster.node(lost)?.start_units()?;
    break_off(cluster, lost, other)?;
    figures.done("the only API server has ended while a node joins")?;
    cluster.await_joined(lost)?;
    cluster.await_ready(&[lost])?;
    figures.done(&format!("{lost} has joined again under its name"))
}

/// Ends the API server of `other`, the only one, when `joining` is about to become a member.
fn break_off(cluster: &TestCluster, joining: &str, other: &str) -> Result<()> {
    Deadline::after(BEGUN).poll("the middle of a join", || {
        Ok(cluster.node(joining)?.log("nqrust-kubeadm").contains(BREAKING_OFF).then_some(()))
    })?;
    cluster.node(other)?.run("pkill -KILL --exact kube-apiserver").map(drop)
}

/// Starts a member of etcd with an address that the others do not know, as with a lease that was lost.
fn move_away(cluster: &mut TestCluster, name: &str) -> Result<()> {
    let known = cluster.place(name)?.address;
    cluster.switch_on_at(name, MOVED)?;
    cluster.node(name)?.start_units()?;
    let told = format!("this node joined its cluster as {known} and has another address now: it has {MOVED}");
    let what = "service failed the address of this node has changed, and etcd knows it by the old one";
    cluster.node(name)?.await_status(&[what, &told, "next: Give it the old address again"], BEGUN)?;
    cluster.cut_off(name)
}

/// Cuts the power of all nodes, and starts them with what they have.
pub(super) fn restart_all(cluster: &mut TestCluster, figures: &mut Figures<'_>) -> Result<()> {
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
    let heartbeats = cluster.heartbeats()?;
    for name in &names {
        cluster.cut_off(name)?;
    }
    move_away(cluster, "node-2")?;
    figures.done("node-2 tells that its address has changed")?;
    for name in &names {
        cluster.switch_on(name)?;
        cluster.node(name)?.start_units()?;
    }
    figures.done("all nodes were off and are on again")?;
    Deadline::after(NOTICED).poll("a write after the power cut", || Ok(cluster.write("after").ok()))?;
    figures.done("the first good write after the power cut")?;
    for name in &names {
        cluster.await_joined(name)?;
    }
    cluster.await_ready_after(&heartbeats)?;
    super::members::check(cluster)?;
    super::traffic::check(cluster)?;
    figures.done("members and pods after the power cut")
}
