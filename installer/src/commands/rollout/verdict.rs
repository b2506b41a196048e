//! What the answers of the nodes come to: one verdict for each. Without effects.

use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use base::digest::Digest;
use base::failure::{Class, Failure};
use cluster::removed_apis::RemovedApi;
use cluster::rollout::QueriedNode;
use cluster::rollout::lock::{LockDecision, RolloutLock};

/// Whether a node could take a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum NodeVerdict {
    /// It could.
    Ready,
    /// It runs the release.
    Runs,
    /// It would refuse the release.
    Refused,
    /// It has not answered, or could not tell.
    Unknown,
}

/// A node with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct JudgedNode {
    node: String,
    /// `server`, `witness` or `worker`.
    part: &'static str,
    /// The version of the OS that runs, as the node has reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<String>,
    verdict: NodeVerdict,
    /// Why it is refused or unknown, from the nearest cause to the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The verdicts on all nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RolloutVerdict {
    /// Whether the rollout can begin.
    good: bool,
    /// The version of the release; none if no node could read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<String>,
    /// SHA-256 of its manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    /// In the order of updates.
    nodes: Vec<JudgedNode>,
    /// What keeps every node from leaving now.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
}

impl RolloutVerdict {
    pub(super) fn of(nodes: &[QueriedNode], lock: &RolloutLock, retry: bool, now: Timestamp) -> Self {
        let offered = |key: &str| {
            nodes
                .iter()
                .find_map(|node| node.answer.as_ref().ok()?["offered"][key].as_str())
                .map(str::to_owned)
        };
        let digest: Option<Digest> = offered("digest").and_then(|digest| digest.parse().ok());
        let decision = digest.map(|digest| lock.decide("", digest, retry, now));
        let stopped = match decision {
            None | Some(LockDecision::Take) => None,
            Some(LockDecision::Busy { holder }) => {
                Some(format!("{holder} is being updated, and has the lock of the cluster's updates"))
            }
            Some(LockDecision::Stopped { holder, why }) => Some(format!(
                "the rollout of the release has stopped: {holder} took it back: {why}; to go on with it: --retry"
            )),
        };
        let nodes: Vec<_> = nodes.iter().map(JudgedNode::of).collect();
        let good = stopped.is_none() && nodes.iter().all(JudgedNode::is_good);
        Self { good, release: offered("version"), digest, nodes, stopped }
    }

    /// Fails unless the rollout can begin.
    ///
    /// # Errors
    /// [`Class::Busy`] if only the lock is taken; [`Class::Hardware`] otherwise.
    pub(super) fn require(&self) -> Result<(), Failure> {
        if self.good {
            return Ok(());
        }
        let bad = self.nodes.iter().filter(|node| !node.is_good()).count();
        let release = self.release.as_deref().unwrap_or("the release");
        let next = "Nothing was changed. Ask again when that is mended.";
        match (bad, &self.stopped) {
            (0, Some(why)) => Err(Failure::new(Class::Busy, why.clone()).hint(next)),
            (bad, _) => {
                let what =
                    format!("{bad} of {} nodes cannot take {release}, or did not say", self.nodes.len());
                Err(Failure::new(Class::Hardware, what).hint(next))
            }
        }
    }

    /// A table, and below it what is to be said of a node.
    pub(super) fn text(&self) -> String {
        let rows = self.nodes.iter().map(|node| {
            let running = node.running.as_deref().unwrap_or("-");
            [node.node.as_str(), node.part, running, node.verdict.word()]
        });
        let rows: Vec<_> = [["node", "part", "runs", "verdict"]].into_iter().chain(rows).collect();
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let [node, part, runs] = [0, 1, 2].map(width);
        let mut text: String = rows
            .iter()
            .map(|[name, role, version, verdict]| {
                format!("{name:node$}  {role:part$}  {version:runs$}  {verdict}\n")
            })
            .collect();
        for node in &self.nodes {
            node.write_details(&mut text);
        }
        if let Some(why) = &self.stopped {
            let _ = writeln!(text, "\nno node may leave now: {why}");
        }
        text
    }
}

impl NodeVerdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Runs => "runs it",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

impl JudgedNode {
    fn of(node: &QueriedNode) -> Self {
        let QueriedNode { name, part, version, answer } = node;
        let judged = Self {
            node: name.clone(),
            part: part.name(),
            running: version.clone(),
            verdict: NodeVerdict::Unknown,
            reasons: Vec::new(),
            hint: None,
            warnings: Vec::new(),
        };
        match answer {
            Err(why) => Self { reasons: vec![why.clone()], ..judged },
            Ok(answer) if answer["error"].is_object() => judged.failed(&answer["error"]),
            Ok(plan) if plan["offer"].is_string() => judged.planned(plan),
            Ok(_) => {
                Self { reasons: vec!["its installer returned something other than a plan".into()], ..judged }
            }
        }
    }

    fn is_good(&self) -> bool {
        matches!(self.verdict, NodeVerdict::Ready | NodeVerdict::Runs)
    }

    /// By the error of the node's installer (`docs/reference/output.md`).
    fn failed(self, error: &Value) -> Self {
        let message = error["message"].as_str().unwrap_or_default();
        let code = error["exit_code"].as_u64().and_then(|code| u8::try_from(code).ok());
        let class = code.map_or(Class::Unexpected, Class::from_exit_code);
        // An installer without this command knows its arguments as little.
        if class == Class::Invalid && message.contains("--check") {
            let why = "the installer of its OS is too old to be asked".to_owned();
            return Self {
                reasons: vec![why],
                hint: Some("Ask on it: installer update check".into()),
                ..self
            };
        }
        let verdict = match class {
            // It cannot read the release, or not judge it: that says nothing of the node and the release.
            Class::Unexpected | Class::Network | Class::Cancelled => NodeVerdict::Unknown,
            _ => NodeVerdict::Refused,
        };
        let causes = error["causes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let reasons = [message].into_iter().chain(causes).map(str::to_owned).collect();
        Self { verdict, reasons, hint: error["hint"].as_str().map(str::to_owned), ..self }
    }

    /// By what the node would do.
    fn planned(self, plan: &Value) -> Self {
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let certificates = &plan["certificates"];
        let certificates = [&certificates["ended"], &certificates["soon"]].into_iter().flat_map(texts);
        let apis =
            serde_json::from_value::<Vec<RemovedApi>>(plan["removed_apis"].clone()).unwrap_or_default();
        let apis = apis.into_iter().map(|api| format!("{api}. {}", RemovedApi::HINT));
        let unknown = plan["removed_apis_unknown"].as_str();
        let unknown = unknown.map(|why| format!("which removed APIs are in use is not known: {why}"));
        let warnings = certificates.chain(apis).chain(unknown).collect();
        match (&plan["unverified"], plan["offer"].as_str()) {
            (_, Some("runs")) => Self { verdict: NodeVerdict::Runs, ..self },
            (Value::String(why), _) => {
                Self { verdict: NodeVerdict::Refused, reasons: vec![why.clone()], warnings, ..self }
            }
            _ => Self { verdict: NodeVerdict::Ready, warnings, ..self },
        }
    }

    fn write_details(&self, text: &mut String) {
        let Self { node, verdict, reasons, hint, warnings, .. } = self;
        if !reasons.is_empty() {
            let _ = writeln!(text, "\n{node} {}: {}", verdict.word(), reasons.join("\n  because: "));
        }
        if let Some(hint) = hint {
            let _ = writeln!(text, "  next: {hint}");
        }
        for warning in warnings {
            let _ = writeln!(text, "\n{node} warning: {warning}");
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::rollout::gate::RolloutPart;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2030-01-01T12:00:00Z";

    fn node(name: &str, part: RolloutPart, answer: Result<Value, &str>) -> QueriedNode {
        let answer = answer.map_err(str::to_owned);
        QueriedNode { name: name.into(), part, version: Some("1.2.0".into()), answer }
    }

    fn digest() -> Digest {
        Digest::of(b"new")
    }

    fn plan(more: Value) -> Result<Value, &'static str> {
        let offered = json!({ "version": "1.3.0", "digest": digest().to_string() });
        let mut plan = json!({ "offer": "new", "offered": offered });
        plan.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Ok(plan)
    }

    fn error(code: u8, message: &str, causes: &[&str]) -> Result<Value, &'static str> {
        let hint = "Renew them.";
        Ok(json!({ "error": { "exit_code": code, "message": message, "causes": causes, "hint": hint } }))
    }

    fn judged(nodes: &[QueriedNode], lock: &RolloutLock, retry: bool) -> RolloutVerdict {
        RolloutVerdict::of(nodes, lock, retry, NOW.parse().unwrap())
    }

    fn verdict(answer: Result<Value, &str>) -> NodeVerdict {
        judged(&[node("n", RolloutPart::Worker, answer)], &RolloutLock::absent(), false).nodes[0].verdict
    }

    #[test]
    fn a_rollout_can_begin_when_every_node_is_ready_or_runs_the_release() {
        let nodes = [
            node("node-1", RolloutPart::Server, plan(json!({ "offer": "runs" }))),
            node("node-2", RolloutPart::Worker, plan(json!({}))),
        ];
        let verdict = judged(&nodes, &RolloutLock::absent(), false);
        verdict.require().unwrap();
        assert_eq!(
            verdict.text(),
            "node    part    runs   verdict\nnode-1  server  1.2.0  runs it\nnode-2  worker  1.2.0  ready\n"
        );
    }

    #[test]
    fn a_node_that_refuses_or_does_not_answer_stops_the_rollout_with_its_reason() {
        let nodes = [
            node(
                "node-1",
                RolloutPart::Server,
                plan(json!({ "certificates": { "soon": ["c is good until x"] } })),
            ),
            node("node-2", RolloutPart::Server, error(3, "it does not fit", &["pci 1 would have no driver"])),
            node("node-3", RolloutPart::Witness, Err("the node is not ready: no network")),
        ];
        let verdict = judged(&nodes, &RolloutLock::absent(), false);
        let failure = verdict.require().unwrap_err();
        assert_eq!(failure.class(), Class::Hardware);
        assert!(failure.to_string().contains("2 of 3 nodes cannot take 1.3.0"), "{failure}");
        assert_eq!(
            verdict.text(),
            "node    part     runs   verdict\n\
             node-1  server   1.2.0  ready\n\
             node-2  server   1.2.0  refused\n\
             node-3  witness  1.2.0  unknown\n\
             \nnode-1 warning: c is good until x\n\
             \nnode-2 refused: it does not fit\n  because: pci 1 would have no driver\n  next: Renew them.\n\
             \nnode-3 unknown: the node is not ready: no network\n"
        );
        let shown = serde_json::to_value(&verdict).unwrap();
        assert_eq!((&shown["good"], &shown["release"]), (&json!(false), &json!("1.3.0")));
        assert_eq!(shown["nodes"][1]["verdict"], "refused");
        assert_eq!(shown["nodes"][1]["reasons"], json!(["it does not fit", "pci 1 would have no driver"]));
    }

    #[test]
    fn apis_that_are_in_use_and_removed_are_a_warning() {
        let api =
            json!({ "group": "batch", "version": "v1beta1", "resource": "cronjobs", "removed_in": "1.38" });
        let nodes = [
            node("node-1", RolloutPart::Server, plan(json!({ "removed_apis": [api] }))),
            node("node-2", RolloutPart::Server, plan(json!({ "removed_apis_unknown": "no answer" }))),
        ];
        let verdict = judged(&nodes, &RolloutLock::absent(), false);
        verdict.require().unwrap();
        let text = verdict.text();
        let told = "node-1 warning: cronjobs of batch/v1beta1 is in use, and Kubernetes 1.38 no longer has it. The audit log";
        assert!(text.contains(told), "{text}");
        assert!(
            text.contains("node-2 warning: which removed APIs are in use is not known: no answer"),
            "{text}"
        );
    }

    #[test]
    fn the_class_of_an_error_says_whether_the_node_has_refused() {
        for (code, expected) in [
            (1, NodeVerdict::Unknown),
            (2, NodeVerdict::Refused),
            (3, NodeVerdict::Refused),
            (4, NodeVerdict::Refused),
            (5, NodeVerdict::Unknown),
            (6, NodeVerdict::Refused),
            (9, NodeVerdict::Refused),
            (77, NodeVerdict::Unknown),
        ] {
            assert_eq!(verdict(error(code, "it failed", &[])), expected, "{code}");
        }
        assert_eq!(verdict(error(2, "unexpected argument '--check' found", &[])), NodeVerdict::Unknown);
        assert_eq!(verdict(Ok(json!([]))), NodeVerdict::Unknown);
        let unsigned = plan(json!({ "unverified": "anyone could have sent it" }));
        assert_eq!(verdict(unsigned), NodeVerdict::Refused, "`apply` would refuse it");
    }

    #[test]
    fn the_lock_of_the_cluster_s_updates_counts_for_this_release() {
        let nodes = [node("node-1", RolloutPart::Server, plan(json!({})))];
        let now: Timestamp = NOW.parse().unwrap();
        let lock = RolloutLock::absent();
        let held = |lease: Value| RolloutLock::read(&lease);
        let busy = held(lock.taken("node-2", digest(), jiff::SignedDuration::from_mins(90), now));
        let failure = judged(&nodes, &busy, false).require().unwrap_err();
        assert_eq!(failure.class(), Class::Busy, "{failure}");
        let stopped = held(lock.stopped("node-2", digest(), "it hung", now));
        let verdict = judged(&nodes, &stopped, false);
        assert!(verdict.require().is_err() && verdict.text().contains("node-2 took it back: it hung"));
        judged(&nodes, &stopped, true).require().unwrap();
        let other = held(lock.stopped("node-2", Digest::of(b"other"), "it hung", now));
        judged(&nodes, &other, false).require().unwrap();
    }
}
