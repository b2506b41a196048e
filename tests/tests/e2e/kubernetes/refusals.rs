//! Nodes that a cluster refuses, as `installer preflight` reports it on a machine that would join.

use std::time::Duration;

use anyhow::{Context, Result};
use model::config::Role;
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::native_cluster::{AGENT_TOKEN, ClusterNode, NativeNode, TOKEN, TestCluster, VIP, is_ready};
use nqrust_tests::node::Checks;
use serde_json::{Value, json};

/// A program with the name of kubeadm that is of an older series.
const OTHER_VERSION: &str = "mkdir -p /usr/local/sbin; printf '#!/bin/sh\\necho v1.36.4\\n' >/usr/local/sbin/kubeadm; chmod 755 /usr/local/sbin/kubeadm";

/// All namespaces have one clock. So it is the time in the cluster's answer that is off, by an hour and some seconds.
const WRONG_CLOCK: &str = r#"cat >/usr/local/sbin/curl <<'END'
#!/bin/sh
/usr/bin/curl "$@" | sed "s/^date:.*/date: $(LC_ALL=C date --utc --date='+3620 seconds' '+%a, %d %b %Y %T GMT')/I"
END
chmod 755 /usr/local/sbin/curl"#;
/// Files that the first steps of a join create.
const TOUCHED: [&str; 4] = [
    "/etc/kubernetes/kubelet.conf",
    "/etc/kubernetes/pki",
    "/var/lib/kubelet/config.yaml",
    "/var/lib/nqrust/kubernetes/join.json",
];
/// Until the node has tried to join and says so.
const TOLD: Duration = Duration::from_secs(60);

/// Until the cluster notices that a node is gone.
const NOTICED: Duration = Duration::from_secs(120);

/// The card of a namespace has no device, by which the inventory knows network cards.
const CARD: &str = "cd /sys/class/net/mgmt-br; address=$(cat address) mtu=$(cat mtu); mount -t tmpfs tmpfs /sys/class/net; \
    cd /sys/class/net; mkdir -p mgmt-br/device; echo $address >mgmt-br/address; echo $mtu >mgmt-br/mtu; echo 1 >mgmt-br/carrier; echo 0 >mgmt-br/addr_assign_type";

/// A change in the document of a joining node, the check that finds it, and its message.
struct RefusedNode {
    what: &'static str,
    changes: Value,
    check: &'static str,
    says: String,
}

pub(super) fn check(cluster: &TestCluster) -> Result<()> {
    let mut document: Value = serde_yaml::from_str(&cluster.document("node-4")?)?;
    let own = json!({
        "os": { "hostname": "node-9" },
        "install": {
            "management_interface": { "ip": "198.51.100.31", "interfaces": [{ "name": "mgmt-br" }] },
            // There are none in the network of the nodes.
            "skip_checks": ["dns", "ntp"],
        },
    });
    merge(&mut document, &own);
    let newcomer =
        cluster.newcomer(&ClusterNode::new("newcomer", Role::Worker, 31), &document.to_string())?;
    newcomer.run(CARD)?;
    let mut checks = Checks::default();
    for refused in refused(cluster)? {
        let mut document = document.clone();
        merge(&mut document, &refused.changes);
        verdict(&newcomer, &document, &refused, &mut checks)?;
    }
    // The path to a node that was cut off just now is measured, and found to lead nowhere.
    await_noticed(cluster)?;
    for verdict in preflight(&newcomer, &document)? {
        let fits = ["passed", "skipped"].contains(&verdict["outcome"].as_str().unwrap_or_default());
        checks.that(&format!("a node that fits: {verdict}"), fits || !name(&verdict).starts_with("join-"));
    }
    newcomer.run(OTHER_VERSION)?;
    let version = RefusedNode {
        what: "another version",
        changes: json!({}),
        check: "join-version",
        says: "this node is to run v1.36.4: kubeadm joins the same series only".to_owned(),
    };
    verdict(&newcomer, &document, &version, &mut checks)?;
    wrong_clock(cluster, &newcomer, &mut checks)?;
    checks.finish("what the cluster refuses")
}

/// Waits until only nodes that run are ready.
fn await_noticed(cluster: &TestCluster) -> Result<()> {
    let runs = |node: &Value| {
        cluster.running().iter().any(|running| node["metadata"]["name"] == running.place().name)
    };
    Deadline::after(NOTICED).every(CLUSTER_INTERVAL).poll("the loss of a node being noticed", || {
        Ok(cluster.kubectl().list(&["nodes"]).iter().all(|node| runs(node) || !is_ready(node)).then_some(()))
    })
}

/// The node is installed, and its clock was lost before it joins.
fn wrong_clock(cluster: &TestCluster, newcomer: &NativeNode, checks: &mut Checks) -> Result<()> {
    newcomer.run(WRONG_CLOCK)?;
    newcomer.run("systemctl start nqrust-kubeadm")?;
    let told = format!("the clock is 60 min behind https://{VIP}:6443: too far to join its cluster");
    let what = "service waiting the clocks of this node and of its cluster differ";
    newcomer.await_status(&[what, &told, "next: Correct the clock"], TOLD)?;
    newcomer.run("systemctl stop nqrust-kubeadm")?;
    for file in TOUCHED {
        let there = newcomer.succeeds(&format!("test -e {file}"));
        checks.that(&format!("a node with a wrong clock has no {file}"), !there);
    }
    let nodes = cluster.kubectl().get(&["nodes"])?;
    checks.that("a node with a wrong clock is not registered", !nodes.to_string().contains("node-9"));
    Ok(())
}

fn refused(cluster: &TestCluster) -> Result<Vec<RefusedNode>> {
    let management = json!({ "role": "management" });
    // The document of a worker has no token of servers.
    let no_agents = json!({ "agent_token": null });
    let taken = cluster.place("node-4")?.address;
    let case = |what, changes, check, says: &str| RefusedNode { what, changes, check, says: says.to_owned() };
    Ok(vec![
        case(
            "a wrong token",
            json!({ "token": "e2e-wrong-7d3c5a91f0b862e4", "install": management }),
            "join-token",
            "the token is not known to the cluster",
        ),
        case(
            "the token of agents",
            json!({ "token": AGENT_TOKEN, "kubernetes": no_agents, "install": management }),
            "join-token",
            "the token is the token of agents, and does not let a server in",
        ),
        case(
            "a second witness",
            json!({ "token": TOKEN, "kubernetes": no_agents, "install": { "role": "witness" } }),
            "join-witness",
            "node-3 (198.51.100.13) is the witness of the cluster, and there can be one only",
        ),
        case(
            "a name that is taken",
            json!({ "os": { "hostname": "node-4" } }),
            "join-hostname",
            "node-4 is the name of another node of the cluster",
        ),
        case(
            "an address that is taken",
            json!({ "install": { "management_interface": { "ip": taken } } }),
            "address-conflict",
            &taken.to_string(),
        ),
        case(
            "a virtual address that somebody has",
            json!({
                "server_url": null, "token": TOKEN,
                "install": { "mode": "create", "role": "management", "vip": VIP },
            }),
            "address-conflict",
            &VIP.to_string(),
        ),
        case(
            "an address without a cluster",
            json!({ "server_url": "https://198.51.100.77" }),
            "join-server",
            "https://198.51.100.77:6443 cannot be reached",
        ),
    ])
}

fn verdict(node: &NativeNode, document: &Value, refused: &RefusedNode, checks: &mut Checks) -> Result<()> {
    let verdicts = preflight(node, document)?;
    let found = verdicts.iter().find(|verdict| name(verdict) == refused.check);
    let found = found.with_context(|| format!("there is no check {}", refused.check))?;
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
    report["checks"].as_array().cloned().with_context(|| format!("no checks in {report}"))
}

/// Changes keys of a document; one that becomes null is gone.
fn merge(document: &mut Value, changes: &Value) {
    match (document, changes) {
        (Value::Object(document), Value::Object(changes)) => {
            for (key, value) in changes {
                match value {
                    Value::Null => drop(document.remove(key)),
                    value => merge(document.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (document, changes) => *document = changes.clone(),
    }
}
