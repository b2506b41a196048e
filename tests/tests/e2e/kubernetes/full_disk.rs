//! The disk of one member of etcd is full: the others go on, and so does that one when there is room again.

use std::time::Duration;

use anyhow::{Result, ensure};
use nqrust_tests::deadline::Deadline;
use nqrust_tests::native_cluster::{NativeNode, TestCluster};

use super::figures::Figures;

/// Room for etcd's log of two files, its data and what the check asks for.
const SMALL_DISK: &str = "mkdir -p /var/lib/etcd; mount -t tmpfs -o size=400m,mode=700 tmpfs /var/lib/etcd";
const FILL: &str = "dd if=/dev/zero of=/var/lib/etcd/filler bs=1M 2>&1 | grep -q 'No space left'";
/// Part of the message with which etcd on the node ends.
const COMPLAINT: &str = "grep -rqs 'no space left on device' /var/log/pods/kube-system_etcd-*";
const FREE: &str = "rm /var/lib/etcd/filler";
/// The time limit of a write, or of its report.
const TOLD: Duration = Duration::from_secs(60);
/// The time until etcd has written more than it had room for.
const ENDED: Duration = Duration::from_secs(120);
/// The kubelet starts a container that ends again and again after minutes.
const RECOVERED: Duration = Duration::from_secs(400);
const STEPS: usize = 30;

/// Gives etcd of a node, which is new there, a disk of its own.
pub(super) fn limit(node: &NativeNode) -> Result<()> {
    node.run(SMALL_DISK).map(drop)
}

pub(super) fn check(cluster: &TestCluster, name: &str, figures: &mut Figures<'_>) -> Result<()> {
    let node = cluster.node(name)?;
    node.await_status(&["cluster ready"], TOLD)?;
    node.run(FILL)?;
    node.await_status(
        &[
            "service failed the persistent partition is full: 0 MiB are left for etcd",
            "next: See what fills it",
        ],
        TOLD,
    )?;
    figures.done(&format!("{name} tells that its disk is full"))?;
    let large = "x".repeat(500_000);
    let mut written = 0;
    Deadline::after(ENDED).poll("the end of an etcd without room", || {
        let content = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": format!("large-{}", written % STEPS) },
            "data": { "x": format!("{written}{large}") },
        });
        written += usize::from(cluster.kubectl().apply_on_server(&content).is_ok());
        Ok(node.succeeds(COMPLAINT).then_some(()))
    })?;
    figures.done(&format!("etcd of {name} has ended after {written} writes"))?;
    for number in 0..5 {
        let what = format!("while-full-{number}");
        Deadline::after(TOLD).poll("a write beside a full disk", || Ok(cluster.write(&what).ok()))?;
    }
    figures.done("the others go on writing")?;
    node.run(FREE)?;
    Deadline::after(RECOVERED).poll("etcd going on", || {
        let voters = cluster.voters(name).unwrap_or_default();
        Ok(voters.iter().any(|voter| voter == name).then_some(()))
    })?;
    cluster.await_ready(&[name])?;
    node.await_status(&["cluster ready"], TOLD)?;
    let kept = cluster.kubectl().get(&["configmap", "while-full-4"])?;
    ensure!(kept["data"]["written"] == "while-full-4", "what was written is {kept}");
    figures.done(&format!("{name} goes on with room again"))
}
