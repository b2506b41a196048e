//! The pod by which a node is asked: its description, and what has become of it. Pure.
//!
//! The pod runs no program of its image: it starts the `installer` of the node, a static program, from the node's root. So any image
//! that is on the node will do, and nothing is fetched.

use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::kubernetes::node::Node;

/// Of the pods, which is where the policies of clusters let privileged ones in.
pub(super) const NAMESPACE: &str = "kube-system";
/// The label of the pods; its value is the run that they belong to.
pub(super) const RUN: &str = "nqrust.io/rollout-check";
/// Where the pod has the root of its node.
const HOST: &str = "/host";
const INSTALLER: &str = "/usr/bin/installer";
/// After this time the pods of a run that was cut off are removed by another one.
const LEFT_OVER: SignedDuration = SignedDuration::from_hours(1);
/// Why a container does not start, and never will (kubelet `pkg/kubelet/images` and `kuberuntime`).
const LASTING: [&str; 5] = [
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

/// One run of the query, which all its pods belong to.
#[derive(Clone, Debug)]
pub(super) struct QueryRun {
    /// A label value.
    pub(super) id: String,
    /// The arguments of the node's installer.
    pub(super) arguments: Vec<String>,
    /// Until the kubelets end it.
    pub(super) limit: Duration,
}

impl QueryRun {
    /// The pod that asks the node `node`, which has the image `image`.
    pub(super) fn pod(&self, index: usize, node: &str, image: &str) -> Value {
        let program = Path::new(HOST).join(INSTALLER.trim_start_matches('/'));
        let command: Vec<_> =
            [program.display().to_string()].into_iter().chain(self.arguments.clone()).collect();
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": format!("nqrust-rollout-check-{}-{index}", self.id),
                "namespace": NAMESPACE,
                "labels": { RUN: self.id },
            },
            "spec": {
                // The scheduler is not asked: a node that is cordoned answers, too.
                "nodeName": node,
                "tolerations": [{ "operator": "Exists" }],
                "restartPolicy": "Never",
                "activeDeadlineSeconds": self.limit.as_secs().max(1),
                "terminationGracePeriodSeconds": 5,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "hostNetwork": true,
                "hostPID": true,
                "dnsPolicy": "Default",
                "containers": [{
                    "name": "installer",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "command": command,
                    "workingDir": "/",
                    "securityContext": { "privileged": true, "runAsUser": 0, "runAsNonRoot": false },
                    "volumeMounts": [{ "name": "host", "mountPath": HOST }],
                }],
                "volumes": [{ "name": "host", "hostPath": { "path": "/", "type": "Directory" } }],
            },
        })
    }
}

/// The smallest image that the node reports (Node v1, `status.images`); its kubelet reports the largest 50.
pub(super) fn image(node: &Node) -> Option<&str> {
    let images = node.status.images.iter().filter(|image| !image.names.is_empty());
    images.min_by_key(|image| image.size_bytes)?.names.first().map(String::as_str)
}

/// What has become of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodState {
    /// Why it does not run yet, or that it runs.
    Open(String),
    /// Its program has ended. What the kubelet says of that, if anything.
    Ended(Option<String>),
    /// It will never run; why.
    Never(String),
}

/// Reads a pod (Kubernetes API, Pod v1).
pub(super) fn state(pod: &Value) -> PodState {
    let status = &pod["status"];
    let container = &status["containerStatuses"][0]["state"];
    let told = |value: &Value| {
        let texts = ["reason", "message"].map(|key| value[key].as_str().filter(|text| !text.is_empty()));
        let texts: Vec<_> = texts.into_iter().flatten().collect();
        (!texts.is_empty()).then(|| texts.join(": "))
    };
    if container["terminated"].is_object() {
        let ended = &container["terminated"];
        return PodState::Ended(told(ended).filter(|_| ended["exitCode"] != 0));
    }
    if matches!(status["phase"].as_str(), Some("Failed" | "Succeeded")) {
        return PodState::Never(told(status).unwrap_or_else(|| "its kubelet ended it".to_owned()));
    }
    let waiting = &container["waiting"];
    match waiting["reason"].as_str() {
        Some(reason) if LASTING.contains(&reason) => PodState::Never(told(waiting).unwrap_or_default()),
        Some(_) => PodState::Open(told(waiting).unwrap_or_default()),
        None if container["running"].is_object() => PodState::Open("the check has not ended".to_owned()),
        None => PodState::Open("its kubelet has not started the check".to_owned()),
    }
}

/// The document that the program has printed: the log has errors in front of it, or only them.
pub(super) fn document(log: &str) -> Option<Value> {
    let beginning = log.lines().scan(0, |at, line| {
        let begin = *at;
        *at += line.len() + 1;
        Some((begin, line))
    });
    let mut beginning = beginning.filter(|(_, line)| line.starts_with('{')).map(|(begin, _)| begin);
    let read = |begin: usize| serde_json::Deserializer::from_str(log.get(begin..)?).into_iter().next()?.ok();
    beginning.find_map(read)
}

/// The names of the pods in `list` that a run has left which was cut off.
pub(super) fn left_over(list: &Value, now: Timestamp) -> Vec<String> {
    let pods = list["items"].as_array().into_iter().flatten();
    let old = pods.filter(|pod| {
        let made = pod["metadata"]["creationTimestamp"].as_str().and_then(|time| time.parse().ok());
        made.is_some_and(|made: Timestamp| now.duration_since(made) > LEFT_OVER)
    });
    old.filter_map(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_starts_the_installer_of_its_node_and_fetches_nothing() {
        let run = QueryRun {
            id: "r1".into(),
            arguments: ["update", "from-pod"].map(str::to_owned).to_vec(),
            limit: Duration::from_secs(60),
        };
        let pod = run.pod(3, "node-1", "registry.example.com/pause:3.10");
        assert_eq!(pod["metadata"]["name"], "nqrust-rollout-check-r1-3");
        assert_eq!(pod["metadata"]["labels"][RUN], "r1");
        let spec = &pod["spec"];
        assert_eq!((&spec["nodeName"], &spec["restartPolicy"]), (&json!("node-1"), &json!("Never")));
        assert_eq!(spec["activeDeadlineSeconds"], 60);
        let container = &spec["containers"][0];
        assert_eq!(container["command"], json!(["/host/usr/bin/installer", "update", "from-pod"]));
        assert_eq!(container["imagePullPolicy"], "Never");
        assert_eq!(spec["automountServiceAccountToken"], false, "the check has no access to the cluster");
    }

    #[test]
    fn the_smallest_image_with_a_name_is_taken() {
        let node = |images: Value| -> Node {
            serde_json::from_value(json!({ "metadata": { "name": "n" }, "status": { "images": images } }))
                .unwrap()
        };
        let images = json!([
            { "names": ["big@sha256:1", "big:1"], "sizeBytes": 900 },
            { "names": ["small@sha256:2", "small:1"], "sizeBytes": 20 },
            { "sizeBytes": 1 },
        ]);
        assert_eq!(image(&node(images)), Some("small@sha256:2"));
        assert_eq!(image(&node(json!([]))), None);
    }

    #[test]
    fn a_pod_is_open_has_ended_or_never_runs() {
        let container = |state: Value| json!({ "status": { "phase": "Pending", "containerStatuses": [{ "state": state }] } });
        for (pod, expected) in [
            (
                json!({ "status": { "phase": "Pending" } }),
                PodState::Open("its kubelet has not started the check".into()),
            ),
            (
                container(json!({ "waiting": { "reason": "ContainerCreating" } })),
                PodState::Open("ContainerCreating".into()),
            ),
            (
                container(json!({ "running": { "startedAt": "…" } })),
                PodState::Open("the check has not ended".into()),
            ),
            (
                container(json!({ "waiting": { "reason": "ErrImageNeverPull", "message": "it is gone" } })),
                PodState::Never("ErrImageNeverPull: it is gone".into()),
            ),
            (
                json!({ "status": { "phase": "Failed", "reason": "OutOfpods", "message": "Node didn't have enough" } }),
                PodState::Never("OutOfpods: Node didn't have enough".into()),
            ),
            (
                container(json!({ "terminated": { "exitCode": 0, "reason": "Completed" } })),
                PodState::Ended(None),
            ),
            (
                container(
                    json!({ "terminated": { "exitCode": 128, "reason": "StartError", "message": "no such file" } }),
                ),
                PodState::Ended(Some("StartError: no such file".into())),
            ),
        ] {
            assert_eq!(state(&pod), expected, "{pod}");
        }
    }

    #[test]
    fn the_document_is_found_behind_what_was_said_before_it() {
        let plan = "{\n  \"offer\": \"new\"\n}\n";
        assert_eq!(document(plan), Some(json!({ "offer": "new" })));
        let said = format!("warning: é\n{{no document\n{plan}error: at the end\n");
        assert_eq!(document(&said), Some(json!({ "offer": "new" })));
        for none in ["", "error: unexpected argument\n", "{\n \"cut\": "] {
            assert_eq!(document(none), None, "{none}");
        }
    }

    #[test]
    fn pods_of_a_run_that_was_cut_off_are_left_over_after_an_hour() {
        let pod = |name: &str, made: &str| json!({ "metadata": { "name": name, "creationTimestamp": made } });
        let list =
            json!({ "items": [pod("old", "2030-01-01T10:00:00Z"), pod("new", "2030-01-01T11:30:00Z")] });
        assert_eq!(left_over(&list, "2030-01-01T12:00:00Z".parse().unwrap()), ["old"]);
    }
}
