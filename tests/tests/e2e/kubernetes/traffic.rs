//! Pods on all nodes that may run some: each reaches every other, their service by its address, and by its name.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::native_cluster::{POD_IMAGE, TestCluster};
use nqrust_tests::node::Checks;
use serde_json::{Value, json};

const NAME: &str = "hello";
/// Returns the name of its node to each client.
const SERVER: &str = "mkdir -p /www && echo \"$NODE\" >/www/index.html && exec httpd -f -p 8080 -h /www";
/// Until the pods run.
const RUN: Duration = Duration::from_secs(120);
/// Until a service has its rules on each node.
const REACH: Duration = Duration::from_secs(60);

/// A pod on each node that takes pods, and a service of them all.
fn manifest() -> Value {
    let labels = json!({ "app": NAME });
    let node = json!({ "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } });
    let container = json!({
        "name": NAME,
        "image": POD_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", SERVER],
        "env": [node],
        "readinessProbe": { "httpGet": { "port": 8080, "path": "/" }, "periodSeconds": 1 },
    });
    let pods = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": NAME },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [container], "terminationGracePeriodSeconds": 0 },
            },
        },
    });
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": NAME },
        "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    json!({ "apiVersion": "v1", "kind": "List", "items": [pods, service] })
}

/// A pod that serves: its name, its node, its address.
struct ServingPod {
    name: String,
    node: String,
    address: String,
}

pub(super) fn check(cluster: &TestCluster) -> Result<()> {
    let kubectl = cluster.kubectl();
    // The account that pods of a new cluster have comes some seconds after the cluster.
    Deadline::after(RUN)
        .poll("the manifest of the pods", || Ok(kubectl.apply(&manifest()).is_ok().then_some(())))?;
    let expected = ["node-1", "node-2", "node-4"];
    let mut pods = Vec::new();
    let all = Deadline::after(RUN).every(CLUSTER_INTERVAL).poll("a pod on each node but the witness", || {
        pods = serving(cluster);
        let nodes: Vec<_> = pods.iter().map(|pod| pod.node.as_str()).collect();
        Ok((nodes == expected).then_some(()))
    });
    all.with_context(|| kubectl.run(&["describe", "pods"]).unwrap_or_default())?;
    let mut checks = Checks::default();
    let service = kubectl.get(&["service", NAME])?;
    let service = service["spec"]["clusterIP"].as_str().context("a service has an address")?.to_owned();
    for pod in &pods {
        for other in &pods {
            let told = visit(cluster, pod, &format!("http://{}:8080/", other.address));
            checks.equal(
                &format!("what {} says to {}", other.node, pod.node),
                told?.trim(),
                other.node.as_str(),
            );
        }
        for url in [format!("http://{service}/"), by_name()] {
            let told = visit(cluster, pod, &url)?;
            checks.that(&format!("{url} from {}: {told:?}", pod.node), expected.contains(&told.trim()));
        }
    }
    for node in cluster.running() {
        let told = node.call(&format!("curl --silent --show-error --max-time 5 http://{service}/"))?;
        checks.that(
            &format!("the service from {}: {}", node.place().name, told.said()),
            expected.contains(&told.stdout.trim()),
        );
    }
    checks.finish("the network of the pods")
}

/// Checks that a pod on the node `name` finds the service by its name.
pub(super) fn check_name(cluster: &TestCluster, name: &str) -> Result<()> {
    let pods = serving(cluster);
    let pod = pods.iter().find(|pod| pod.node == name).with_context(|| format!("{name} has no pod"))?;
    visit(cluster, pod, &by_name()).map(drop)
}

fn by_name() -> String {
    format!("http://{NAME}.default.svc.cluster.local/")
}

/// The pods that are ready, by their nodes; none if one is on a node that takes none.
fn serving(cluster: &TestCluster) -> Vec<ServingPod> {
    let pods = cluster.kubectl().list(&["pods", "--selector", &format!("app={NAME}")]);
    let serving = pods.iter().filter_map(|pod| {
        let conditions = pod["status"]["conditions"].as_array()?;
        let ready =
            conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let there = ready && pod["metadata"].get("deletionTimestamp").is_none();
        there.then_some(())?;
        Some(ServingPod {
            name: text(&pod["metadata"]["name"])?,
            node: text(&pod["spec"]["nodeName"])?,
            address: text(&pod["status"]["podIP"])?,
        })
    });
    let mut serving: Vec<_> = serving.collect();
    serving.sort_by(|one, other| one.node.cmp(&other.node));
    serving
}

/// The answer of a server to a pod.
fn visit(cluster: &TestCluster, pod: &ServingPod, url: &str) -> Result<String> {
    let kubectl = cluster.kubectl();
    let words = ["exec", &pod.name, "--", "wget", "-q", "-T", "5", "-O", "-", url];
    let mut last = String::new();
    let answer = Deadline::after(REACH).poll(&format!("an answer of {url} to {}", pod.node), || {
        let ended = kubectl.call(&words, "")?;
        last = ended.said();
        Ok((ended.code == 0).then_some(ended.stdout))
    });
    let answer = answer.with_context(|| last.clone())?;
    ensure!(!answer.is_empty(), "{url} answers nothing to {}", pod.node);
    if answer.lines().count() != 1 {
        bail!("{url} answers {answer:?} to {}", pod.node);
    }
    Ok(answer)
}
