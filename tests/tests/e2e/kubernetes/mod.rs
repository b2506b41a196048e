//! A whole cluster of upstream Kubernetes, made by `installer render`, `apply`, `kubeadm` and `pod-network`: with the programs, the
//! images and the units that nodes have, on nodes that are namespaces of this machine.
//!
//! Two management nodes, a witness and a worker. [`members`] looks at what they are, [`traffic`] at what pods reach, [`refusals`] at what
//! the cluster does not take in, [`failures`] at what is left when a node is gone, and at its return. How long each part took and how much
//! memory the nodes' processes have is in `figures.txt` of the artifacts.

mod failures;
mod figures;
mod members;
mod refusals;
mod traffic;

use anyhow::{Result, bail};
use model::config::Role;
use nix::unistd::geteuid;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::native_cluster::{ClusterNode, TestCluster};
use serde_json::json;

use self::figures::Figures;

/// A label that the worker has by its document, beside those of its role.
const LABEL: (&str, &str) = ("example.org/rack", "r1");
/// A taint that the worker has by its document.
const TAINT: &str = "example.org/kept=true:PreferNoSchedule";

fn nodes() -> Vec<ClusterNode> {
    let own = json!({ "os": { "labels": { LABEL.0: LABEL.1 } }, "kubernetes": { "node_taints": [TAINT] } });
    vec![
        ClusterNode::new("node-1", Role::Management, 11),
        ClusterNode::new("node-2", Role::Management, 12),
        ClusterNode::new("node-3", Role::Witness, 13),
        ClusterNode::new("node-4", Role::Worker, 21).with(own),
    ]
}

#[test]
fn nodes_join_a_cluster_that_goes_on_without_one_of_them() {
    if !geteuid().is_root() {
        testing::programs::leave_out(
            "the cluster of namespaces",
            "it needs root, for control groups and devices",
        );
        return;
    }
    scenario("kubernetes", |artifacts| {
        let mut figures = Figures::new(artifacts);
        let outcome = run(artifacts, &mut figures);
        if outcome.is_err() {
            figures.say("the test has failed")?;
        }
        outcome
    });
}

fn run(artifacts: &Artifacts, figures: &mut Figures<'_>) -> Result<()> {
    let mut cluster = TestCluster::lay(&artifacts.disk("cluster"), nodes())?;
    figures.done("packages, programs and network")?;
    let outcome = parts(&mut cluster, figures);
    if let Err(error) = outcome {
        cluster.keep_logs(&artifacts.path("logs"))?;
        bail!("{error:#}");
    }
    Ok(())
}

fn parts(cluster: &mut TestCluster, figures: &mut Figures<'_>) -> Result<()> {
    cluster.create(&mut |part| figures.done(part))?;
    cluster.join_all(&["node-4", "node-2", "node-3"], &mut |part| figures.done(part))?;
    members::check(cluster)?;
    figures.done("what the nodes are")?;
    traffic::check(cluster)?;
    figures.done("pods and their service reach each other")?;
    figures.memory(cluster)?;
    let lost = failures::lose_holder(cluster, figures)?;
    refusals::check(cluster)?;
    figures.done("what the cluster refuses")?;
    failures::install_again(cluster, &lost, figures)?;
    members::check(cluster)?;
    traffic::check(cluster)?;
    figures.done("the cluster is whole again")?;
    failures::restart_all(cluster, figures)
}
