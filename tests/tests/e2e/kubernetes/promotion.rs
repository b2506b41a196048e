//! Nodes of the role `default` become management nodes by their documents: one because the cluster has two only, another in the
//! place of one that is lost for good.

use std::time::Duration;

use anyhow::{Result, ensure};
use model::config::Role;
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::native_cluster::{ClusterNode, TestCluster};
use serde_json::json;

use super::figures::Figures;
use super::{failures, full_disk};

/// Until a node tells that etcd does not take it.
const REFUSED: Duration = Duration::from_secs(120);
/// Until the last member of etcd votes.
const VOTERS: Duration = Duration::from_secs(60);

pub(super) fn nodes() -> Vec<ClusterNode> {
    vec![
        ClusterNode::new("node-1", Role::Management, 11),
        ClusterNode::new("node-2", Role::Management, 12),
        ClusterNode::new("node-3", Role::Default, 13),
        ClusterNode::new("node-4", Role::Default, 14),
    ]
}

pub(super) fn check(cluster: &mut TestCluster, figures: &mut Figures<'_>) -> Result<()> {
    cluster.create(&mut |part| figures.done(part))?;
    cluster.join_all(&["node-2", "node-3", "node-4"], &mut |part| figures.done(part))?;
    promote(cluster, "node-3")?;
    full_disk::limit(cluster.node("node-3")?)?;
    cluster.node("node-3")?.start_units()?;
    await_promoted(cluster, "node-3", &["node-1", "node-2", "node-3"])?;
    figures.done("node-3 is the third management node")?;
    full_disk::check(cluster, "node-3", figures)?;
    let lost = failures::lose_holder(cluster, figures)?;
    promote(cluster, "node-4")?;
    cluster.node("node-4")?.start_units()?;
    let away = format!("another server of the cluster is away (the member {lost} of etcd does not answer");
    cluster.node("node-4")?.await_status(&[&away, "kubectl delete node NAME"], REFUSED)?;
    figures.done(&format!("etcd takes nobody while it counts {lost}"))?;
    cluster.kubectl().run(&["delete", "node", &lost])?;
    let mut voters = vec!["node-1", "node-2", "node-3", "node-4"];
    voters.retain(|name| *name != lost);
    await_promoted(cluster, "node-4", &voters)?;
    let said = cluster.node("node-4")?.log("nqrust-kubeadm");
    ensure!(said.contains(&format!("The member {lost} of etcd is gone for good")), "node-4 said {said}");
    cluster.write("whole-again")?;
    figures.done(&format!("node-4 has taken the place of {lost}"))
}

/// Gives a node the role by its document, and starts it again; its units wait.
fn promote(cluster: &mut TestCluster, name: &str) -> Result<()> {
    cluster.change_role(name, Role::Management)?;
    cluster.cut_off(name)?;
    cluster.switch_on(name)
}

fn await_promoted(cluster: &TestCluster, name: &str, voters: &[&str]) -> Result<()> {
    cluster.await_joined(name)?;
    cluster.await_ready(&[name])?;
    Deadline::after(VOTERS).every(CLUSTER_INTERVAL).poll(&format!("{voters:?} voting"), || {
        Ok((cluster.voters(name).unwrap_or_default() == voters).then_some(()))
    })?;
    let node = cluster.kubectl().get(&["node", name])?;
    let labels = &node["metadata"]["labels"];
    ensure!(
        labels["node-role.harvesterhci.io/management"] == json!("true"),
        "the labels of {name}: {labels}"
    );
    ensure!(labels.get("node-role.kubernetes.io/control-plane").is_some(), "the labels of {name}: {labels}");
    ensure!(node["spec"].get("taints").is_none(), "the taints of {name}: {}", node["spec"]["taints"]);
    let node = cluster.node(name)?;
    ensure!(
        node.succeeds("curl --silent --fail --insecure https://127.0.0.1:6443/readyz"),
        "{name} has no API server"
    );
    node.await_status(&["role management (mode join)", "cluster ready"], VOTERS)
}
