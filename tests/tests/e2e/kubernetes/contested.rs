//! A machine that is no part of the cluster takes the virtual address for its own, while a node has it.

use std::time::Duration;

use anyhow::Result;
use model::config::Role;
use nqrust_tests::deadline::Deadline;
use nqrust_tests::native_cluster::{ClusterNode, TestCluster, VIP};

/// Until `installer status` tells what it sees.
const TOLD: Duration = Duration::from_secs(30);
/// Until everybody has the address of the right machine again.
const FOUND: Duration = Duration::from_secs(60);

pub(super) fn check(cluster: &TestCluster) -> Result<()> {
    let holder = cluster.holder()?;
    let holder = cluster.node(&holder)?;
    holder.await_status(&["cluster ready"], TOLD)?;
    let stranger = ClusterNode::new("stranger", Role::Worker, VIP.octets()[3]);
    let machine = stranger.hardware_address();
    let stranger = cluster.newcomer(&stranger, &cluster.document("node-4")?)?;
    let what = format!("server failed the machine with the hardware address {machine} answers for {VIP} too");
    holder.await_status(&["not ready: in stage server", &what, "next: Find that machine"], TOLD)?;
    drop(stranger);
    holder.await_status(&["cluster ready"], TOLD)?;
    for node in cluster.running() {
        node.run(&format!("ip neighbor flush to {VIP}"))?;
    }
    Deadline::after(FOUND).poll("a write at the address", || Ok(cluster.write("uncontested").ok()))
}
