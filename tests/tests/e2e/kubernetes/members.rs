//! The roles of nodes in the cluster: voters of etcd, labels, taints, keys that a witness has not kept.

use std::time::Duration;

use anyhow::{Context, Result};
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::native_cluster::TestCluster;
use nqrust_tests::node::Checks;
use serde_json::{Value, json};

use super::LABEL;

/// Until the last member of etcd votes.
const VOTERS: Duration = Duration::from_secs(60);
/// Until kube-proxy runs on a node that is Ready.
const PROXY: Duration = Duration::from_secs(60);
/// Keys that whoever takes a witness must not find.
const FORGOTTEN: [&str; 4] = ["admin.conf", "pki/ca.key", "pki/sa.key", "pki/etcd/ca.key"];

pub(super) fn check(cluster: &TestCluster) -> Result<()> {
    let mut checks = Checks::default();
    Deadline::after(VOTERS).every(CLUSTER_INTERVAL).poll("three voters", || {
        let members = cluster.voters("node-3").unwrap_or_default();
        Ok((members == ["node-1", "node-2", "node-3"]).then_some(()))
    })?;
    let nodes = cluster.kubectl().get(&["nodes"])?;
    let found = nodes["items"].as_array().context("a list of nodes")?;
    checks.equal("the number of nodes", found.len(), cluster.nodes().len());
    for known in cluster.nodes() {
        let node = found.iter().find(|node| node["metadata"]["name"] == known.name.as_str());
        let Some(node) = node else {
            checks.that(&format!("{} is in the cluster", known.name), false);
            continue;
        };
        check_node(&known.name, known.role.name(), node, &mut checks);
    }
    let witness = cluster.node("node-3")?;
    for file in FORGOTTEN {
        checks.that(
            &format!("the witness has no {file}"),
            !witness.succeeds(&format!("test -e /etc/kubernetes/{file}")),
        );
    }
    checks.that(
        "a management node has keys",
        cluster.node("node-2")?.succeeds("test -e /etc/kubernetes/pki/ca.key"),
    );
    for node in cluster.running() {
        checks.that(
            &format!("{} keeps no bootstrap token", node.place().name),
            !node.succeeds("test -e /etc/kubernetes/bootstrap-kubelet.conf"),
        );
    }
    for node in cluster.running() {
        let name = &node.place().name;
        checks.that(&format!("crictl of {name} asks containerd"), node.succeeds("crictl info"));
        Deadline::after(PROXY).every(CLUSTER_INTERVAL).poll(
            &format!("crictl of {name} showing kube-proxy"),
            || {
                let shown = node.run("crictl ps --quiet --name '^kube-proxy$'")?;
                Ok((!shown.trim().is_empty()).then_some(()))
            },
        )?;
    }
    checks.finish("the members of the cluster")
}

fn check_node(name: &str, role: &str, node: &Value, checks: &mut Checks) {
    let labels = &node["metadata"]["labels"];
    checks.equal(
        &format!("{name}: the label of its role"),
        &labels[format!("node-role.harvesterhci.io/{role}")],
        &json!("true"),
    );
    checks.equal(
        &format!("{name}: harvesterhci.io/managed"),
        &labels["harvesterhci.io/managed"],
        &json!("true"),
    );
    let has = |label: &str| labels.get(label).is_some();
    checks.equal(
        &format!("{name} is a control plane"),
        has("node-role.kubernetes.io/control-plane"),
        role == "management",
    );
    checks.equal(&format!("{name} is an etcd"), has("node-role.kubernetes.io/etcd"), role == "witness");
    checks.equal(
        &format!("{name} has the label of its document"),
        labels[LABEL.0] == LABEL.1,
        role == "worker",
    );
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let expected = match role {
        "witness" => {
            json!([{ "key": "node-role.kubernetes.io/etcd", "value": "true", "effect": "NoExecute" }])
        }
        "worker" => json!([{ "key": "example.org/kept", "value": "true", "effect": "PreferNoSchedule" }]),
        _ => json!([]),
    };
    checks.equal(&format!("{name}: the taints"), Value::from(taints), expected);
}
