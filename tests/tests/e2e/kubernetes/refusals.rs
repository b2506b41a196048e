//! What a cluster does not take in, as `installer preflight` tells it on a machine that would join.

use anyhow::{Context, Result};
use nqrust_tests::native_cluster::NativeNode;
use nqrust_tests::node::Checks;
use serde_json::{Value, json};

use super::cluster::{AGENT_TOKEN, TestCluster, VIP};

/// A program with the name of kubeadm that is of an older series.
const OTHER_VERSION: &str =
    "printf '#!/bin/sh\\necho v1.36.4\\n' >/usr/local/sbin/kubeadm; chmod 755 /usr/local/sbin/kubeadm";

/// What is changed in the document of a newcomer, which check speaks, and what it says.
struct RefusedNode {
    what: &'static str,
    changes: Value,
    check: &'static str,
    says: String,
}

pub(super) fn check(cluster: &TestCluster, lost: &str) -> Result<()> {
    let document: Value = serde_yaml::from_str(&cluster.document("node-4")?)?;
    let mut document = document;
    document["os"]["hostname"] = json!("node-9");
    document["install"]["management_interface"]["ip"] = json!("198.51.100.31");
    let newcomer = cluster.newcomer(&document.to_string())?;
    let mut checks = Checks::default();
    let verdicts = preflight(&newcomer, &document)?;
    for verdict in verdicts.iter().filter(|verdict| name(verdict).starts_with("join-")) {
        checks.that(
            &format!("a node that fits: {verdict}"),
            verdict["outcome"] == "passed" || verdict["outcome"] == "skipped",
        );
    }
    let other = if lost == "node-1" { "node-2" } else { "node-1" };
    for refused in refused(cluster, other)? {
        let mut document = document.clone();
        merge(&mut document, &refused.changes);
        verdict(&newcomer, &document, &refused, &mut checks)?;
    }
    newcomer.run(OTHER_VERSION)?;
    let version = RefusedNode {
        what: "another version",
        changes: Value::Null,
        check: "join-version",
        says: "1.36".to_owned(),
    };
    verdict(&newcomer, &document, &version, &mut checks)?;
    checks.finish("what the cluster refuses")
}

fn refused(cluster: &TestCluster, other: &str) -> Result<Vec<RefusedNode>> {
    let management = json!({ "install": { "role": "management" } });
    let address = cluster.place(other)?.address;
    let mut wrong = json!({ "token": "e2e-wrong-0123456789abcdef" });
    let mut agent = json!({ "token": AGENT_TOKEN, "kubernetes": { "agent_token": AGENT_TOKEN } });
    for changes in [&mut wrong, &mut agent] {
        merge(changes, &management);
    }
    Ok(vec![
        RefusedNode {
            what: "a wrong token",
            changes: wrong,
            check: "join-token",
            says: "the cluster has no such token".to_owned(),
        },
        RefusedNode {
            what: "the token of agents",
            changes: agent,
            check: "join-token",
            says: "token".to_owned(),
        },
        RefusedNode {
            what: "a second witness",
            changes: json!({ "install": { "role": "witness" } }),
            check: "join-witness",
            says: "node-3".to_owned(),
        },
        RefusedNode {
            what: "a name that is taken",
            changes: json!({ "os": { "hostname": "node-4" } }),
            check: "join-hostname",
            says: "node-4".to_owned(),
        },
        RefusedNode {
            what: "an address of the cluster that is a node's",
            changes: json!({ "server_url": format!("https://{address}"), "install": { "role": "management" } }),
            check: "join-vip",
            says: other.to_owned(),
        },
        RefusedNode {
            what: "no server",
            changes: json!({ "server_url": "https://198.51.100.77" }),
            check: "join-server",
            says: "198.51.100.77".to_owned(),
        },
    ])
}

fn verdict(node: &NativeNode, document: &Value, refused: &RefusedNode, checks: &mut Checks) -> Result<()> {
    let verdicts = preflight(node, document)?;
    let found = verdicts.iter().find(|verdict| name(verdict) == refused.check);
    let found = found.with_context(|| format!("there is no check {}", refused.check))?;
    eprintln!("{}: {found}", refused.what);
    checks.equal(&format!("{}: the outcome of {found}", refused.what), &found["outcome"], &json!("found"));
    checks.contains(refused.what, &found.to_string(), &refused.says);
    Ok(())
}

fn name(verdict: &Value) -> &str {
    verdict["check"].as_str().unwrap_or_default()
}

/// The verdicts of all checks on the node, whose files stay as they are.
fn preflight(node: &NativeNode, document: &Value) -> Result<Vec<Value>> {
    let path = node.place().directory.join("oem/asked.yaml");
    std::fs::write(&path, document.to_string())?;
    let told = node.call("installer --progress plain preflight --format json --config /oem/asked.yaml")?;
    let report: Value = serde_json::from_str(&told.stdout).with_context(|| {
        format!("installer preflight ended with {} and said {:?}", told.code, told.said())
    })?;
    report["checks"].as_array().cloned().with_context(|| format!("no checks in {report}, VIP {VIP}"))
}

fn merge(document: &mut Value, changes: &Value) {
    match (document, changes) {
        (Value::Object(document), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(document.entry(key).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (document, changes) => *document = changes.clone(),
    }
}
