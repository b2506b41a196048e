//! Asks every node of a cluster: a pod on each starts the node's own `installer`, and its answer is the pod's log.
//!
//! Nodes share no other way to be asked: each works by itself, and reports to its Node object only what has happened.

use std::time::{Duration, Instant};

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use super::admin::{AdminAccess, may_pass};
use super::gate::{GateNode, RolloutPart};
use super::query_pod::{PodState, QueryRun, document, image, left_over, state};
use super::report;
use crate::kubernetes::node::Node;
use base::cancel::Cancel;

const POLL: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_secs(2) };
/// For a pod to be ended and removed beside the time of its check.
const GRACE: Duration = Duration::from_secs(30);

/// A node and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct QueriedNode {
    pub name: String,
    pub part: RolloutPart,
    /// The version of the OS that it has reported.
    pub version: Option<String>,
    /// The document that its installer has printed, or why there is none: a clause.
    pub answer: Result<Value, String>,
}

/// What is asked of a node.
#[derive(Clone, Copy, Debug)]
struct OpenQuery<'a> {
    node: &'a str,
    index: usize,
}

/// Starts `installer` with `arguments` on every node, and waits until all have answered, at most for `limit`. In the order of updates.
/// Its pods are removed in any case.
///
/// # Errors
/// The cluster cannot be asked for its nodes, or the query was cancelled.
pub fn ask_nodes(
    admin: &AdminAccess<'_>,
    arguments: Vec<String>,
    limit: Duration,
    cancel: &Cancel,
) -> Result<Vec<QueriedNode>> {
    let nodes = admin.nodes()?;
    let now = Timestamp::now();
    if let Ok(pods) = admin.query_pods(None) {
        // Pods that stay do no harm.
        let _ = admin.remove_query_pods(&left_over(&pods, now));
    }
    // One thousandth of a second and the process tell runs apart; the name of an object has only small letters and digits.
    let id = format!("{:x}{:x}", now.as_millisecond(), std::process::id());
    let run = QueryRun { id, arguments, limit: limit + GRACE };
    let answers = query(admin, &run, &nodes, Instant::now() + limit, cancel);
    let made = admin.query_pods(Some(&run.id));
    let names = made.as_ref().map(names).unwrap_or_default();
    let _ = admin.remove_query_pods(&names);
    let mut queried: Vec<_> =
        nodes.iter().zip(answers?).map(|(node, answer)| of_node(node, answer)).collect();
    queried.sort_by(|one, other| (one.part, &one.name).cmp(&(other.part, &other.name)));
    Ok(queried)
}

fn of_node(node: &Node, answer: Result<Value, String>) -> QueriedNode {
    let GateNode { name, part, .. } = GateNode::of(node);
    let version = node.metadata.annotations.get(report::VERSION).cloned();
    QueriedNode { name, part, version, answer }
}

fn names(pods: &Value) -> Vec<String> {
    let pods = pods["items"].as_array().into_iter().flatten();
    pods.filter_map(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned).collect()
}

/// The answer of each node, in their order.
fn query(
    admin: &AdminAccess<'_>,
    run: &QueryRun,
    nodes: &[Node],
    until: Instant,
    cancel: &Cancel,
) -> Result<Vec<Result<Value, String>>> {
    let mut answers: Vec<Option<Result<Value, String>>> = vec![None; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        cancel.check()?;
        answers[index] = begin(admin, run, index, node).err().map(Err);
    }
    let mut last = vec!["the cluster did not say what became of the check".to_owned(); nodes.len()];
    loop {
        let open = answers.iter().enumerate().filter(|(_, answer)| answer.is_none());
        let open: Vec<_> =
            open.map(|(index, _)| OpenQuery { node: &nodes[index].metadata.name, index }).collect();
        if open.is_empty() {
            break;
        }
        match admin.query_pods(Some(&run.id)) {
            Ok(pods) => {
                for OpenQuery { node, index } in open {
                    match answer(admin, &pods, node) {
                        Ok(answer) => answers[index] = Some(answer),
                        Err(why) => last[index] = why,
                    }
                }
            }
            Err(error) if !may_pass(&error) => return Err(error),
            Err(error) => last.fill(format!("the cluster cannot be asked: {error:#}")),
        }
        if Instant::now() >= until {
            break;
        }
        cancel.pause(POLL)?;
    }
    let seconds = run.limit.saturating_sub(GRACE).as_secs();
    let late = |why: String| Err(format!("no answer within {seconds} s: {why}"));
    Ok(answers.into_iter().zip(last).map(|(answer, why)| answer.unwrap_or_else(|| late(why))).collect())
}

/// Makes the pod on a node that can start one; otherwise says why not.
fn begin(admin: &AdminAccess<'_>, run: &QueryRun, index: usize, node: &Node) -> Result<(), String> {
    let name = &node.metadata.name;
    if let Some(why) = node.unready_reason() {
        return Err(format!("the node is not ready: {why}"));
    }
    let image = image(node).ok_or("the node reports no container image by which a pod could be started")?;
    admin
        .make(&run.pod(index, name, image))
        .map_err(|error| format!("no pod can be made for the check: {error:#}"))
}

/// The answer of a node by its pod; why there is none yet.
fn answer(admin: &AdminAccess<'_>, pods: &Value, node: &str) -> Result<Result<Value, String>, String> {
    let mut all = pods["items"].as_array().into_iter().flatten();
    let Some(pod) = all.find(|pod| pod["spec"]["nodeName"] == node) else {
        return Err("its pod is gone".to_owned());
    };
    let why = match state(pod) {
        PodState::Open(why) => return Err(why),
        PodState::Never(why) => return Ok(Err(format!("the check did not start: {why}"))),
        PodState::Ended(why) => why,
    };
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    // A kubelet that is busy answers later.
    let log = admin.query_log(name).map_err(|error| format!("the answer cannot be read: {error:#}"))?;
    Ok(document(&log).ok_or_else(|| match (log.lines().rfind(|line| !line.trim().is_empty()), why) {
        (Some(line), _) => format!("the check ended without an answer: {}", line.trim()),
        (None, Some(why)) => format!("the check did not start: {why}"),
        (None, None) => "the check ended without an answer".to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use base::command::{Invocation, Runner};
    use model::config::Distribution;
    use serde_json::json;

    use super::*;

    /// A cluster of nodes whose pods end with these logs; no log is a pod that never ends.
    struct FakeCluster {
        nodes: Value,
        logs: Vec<(&'static str, Option<&'static str>)>,
        pods: Mutex<Vec<Value>>,
        removed: Mutex<Vec<String>>,
        cancelled: &'static AtomicBool,
        cancels: bool,
    }

    impl Runner for FakeCluster {
        fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
            let line = invocation.display();
            let mut pods = self.pods.lock().unwrap();
            if line.contains(" get ") && line.contains(" nodes") {
                return Ok(self.nodes.to_string().into_bytes());
            }
            if line.contains(" create ") {
                let mut pod: Value = serde_json::from_slice(&invocation.stdin)?;
                let log = self.logs.iter().find(|(node, _)| pod["spec"]["nodeName"] == *node).unwrap().1;
                pod["status"] = match log {
                    Some(_) => {
                        json!({ "containerStatuses": [{ "state": { "terminated": { "exitCode": 0 } } }] })
                    }
                    None => json!({ "containerStatuses": [{ "state": { "running": {} } }] }),
                };
                pods.push(pod);
                self.cancelled.store(self.cancels, Ordering::Relaxed);
                return Ok(Vec::new());
            }
            if line.contains(" logs ") {
                let pod = pods.iter().find(|pod| line.contains(pod["metadata"]["name"].as_str().unwrap()));
                let node = pod.unwrap()["spec"]["nodeName"].clone();
                let log = self.logs.iter().find(|(name, _)| node == *name).unwrap().1;
                return Ok(log.unwrap().as_bytes().to_vec());
            }
            if line.contains(" delete ") {
                self.removed.lock().unwrap().push(line);
                return Ok(Vec::new());
            }
            assert!(line.contains(" get ") && line.contains(" pods "), "{line}");
            let listed: Vec<_> = match line.contains("rollout-check=") {
                true => pods.clone(),
                false => Vec::new(),
            };
            Ok(json!({ "items": listed }).to_string().into_bytes())
        }
    }

    fn node(name: &str, label: &str, ready: bool) -> Value {
        json!({
            "metadata": {
                "name": name, "labels": { label: "" }, "annotations": { "nqrust.io/os-version": "1.2.0" },
            },
            "status": {
                "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "Unknown" }, "message": "Kubelet stopped" }],
                "images": [{ "names": ["localhost/a:1"], "sizeBytes": 5 }],
            },
        })
    }

    const SERVER: &str = "node-role.kubernetes.io/control-plane";
    const WITNESS: &str = "node-role.kubernetes.io/etcd";
    static NEVER: AtomicBool = AtomicBool::new(false);

    fn cluster(logs: Vec<(&'static str, Option<&'static str>)>) -> FakeCluster {
        let nodes = json!({ "items": [
            node("w1", "x", true), node("q1", WITNESS, true), node("s2", SERVER, true), node("s1", SERVER, false),
        ] });
        let (pods, removed) = Default::default();
        FakeCluster { nodes, logs, pods, removed, cancelled: &NEVER, cancels: false }
    }

    fn asked(cluster: &FakeCluster, limit: Duration) -> Result<Vec<QueriedNode>> {
        let admin = AdminAccess::new(cluster, Distribution::Kubeadm, PathBuf::from("/admin.conf"));
        ask_nodes(&admin, vec!["update".into()], limit, &Cancel::new(cluster.cancelled))
    }

    #[test]
    fn each_node_answers_for_itself_and_one_that_cannot_says_why() {
        let cluster = cluster(vec![
            ("s2", Some("{\"offer\": \"new\"}\n")),
            ("q1", Some("error: unexpected argument\n")),
            ("w1", None),
        ]);
        let nodes = asked(&cluster, Duration::from_millis(30)).unwrap();
        let told: Vec<_> =
            nodes.iter().map(|node| (node.name.as_str(), node.part, node.answer.clone())).collect();
        let unknown = |why: &str| Err(why.to_owned());
        assert_eq!(
            told,
            [
                ("s1", RolloutPart::Server, unknown("the node is not ready: Kubelet stopped")),
                ("s2", RolloutPart::Server, Ok(json!({ "offer": "new" }))),
                (
                    "q1",
                    RolloutPart::Witness,
                    unknown("the check ended without an answer: error: unexpected argument")
                ),
                ("w1", RolloutPart::Worker, unknown("no answer within 0 s: the check has not ended")),
            ]
        );
        assert_eq!(nodes[1].version.as_deref(), Some("1.2.0"));
        let removed = cluster.removed.lock().unwrap();
        assert_eq!(removed.len(), 1, "{removed:?}");
        assert_eq!(removed[0].matches("nqrust-rollout-check-").count(), 3, "{removed:?}");
    }

    #[test]
    fn a_cancelled_query_leaves_no_pod() {
        static CANCELLED: AtomicBool = AtomicBool::new(false);
        let made = cluster(vec![("s2", None), ("q1", None), ("w1", None)]);
        let cluster = FakeCluster { cancelled: &CANCELLED, cancels: true, ..made };
        let error = asked(&cluster, Duration::from_secs(60)).unwrap_err();
        assert_eq!(base::failure::class_of(&error), base::failure::Class::Cancelled);
        assert_eq!(cluster.removed.lock().unwrap().len(), 1, "the pods are removed");
    }
}
