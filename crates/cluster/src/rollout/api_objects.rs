//! Reads the API's answers for the gate, without effects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::gate::{BoundMachine, GateNode, RolloutPart, StrandedVolume};
use super::report::{DIGEST, ReportedState, STATE};
use crate::kubernetes::node::Node;

/// The annotation of a node that was cordoned for an update.
pub const LEAVING: &str = "nqrust.io/update-cordoned";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const ETCD: &str = "node-role.kubernetes.io/etcd";

impl GateNode {
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let annotation = |name: &str| node.metadata.annotations.get(name);
        // kubeadm gives the label without a value.
        let has = |label: &str| node.metadata.labels.get(label).is_some_and(|value| value != "false");
        let part = match (has(CONTROL_PLANE), has(ETCD)) {
            (true, _) => RolloutPart::Server,
            (false, true) => RolloutPart::Witness,
            (false, false) => RolloutPart::Worker,
        };
        Self {
            name: node.metadata.name.clone(),
            part,
            ready: node.is_ready(),
            leaving: node.spec.unschedulable && annotation(LEAVING).is_some(),
            state: annotation(STATE).and_then(|state| ReportedState::read(state)),
            about: annotation(DIGEST).and_then(|digest| digest.parse().ok()),
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// `NAMESPACE/NAME`.
fn name(object: &Value) -> String {
    let [namespace, name] = ["namespace", "name"].map(|part| object["metadata"][part].as_str());
    format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
}

/// The virtual machines of `instances` that still run on `node` (KubeVirt API, VirtualMachineInstance v1).
pub(super) fn machines_on<'a>(instances: &'a Value, node: &str) -> Vec<&'a Value> {
    let runs = |instance: &&Value| {
        let over = matches!(instance["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        instance["status"]["nodeName"] == node && !over
    };
    items(instances).filter(runs).collect()
}

pub(super) fn names(machines: &[&Value]) -> Vec<String> {
    machines.iter().map(|machine| name(machine)).collect()
}

/// Machines on `node` whose eviction is refused for ever: they want to be moved, and KubeVirt says that it cannot move them. With
/// other strategies they are shut down, or left to somebody else.
pub(super) fn bound(instances: &Value, node: &str) -> Vec<BoundMachine> {
    let stays = |instance: &&Value| {
        let strategy = [&instance["status"]["evictionStrategy"], &instance["spec"]["evictionStrategy"]];
        let strategy = strategy.into_iter().find_map(Value::as_str);
        let migratable = condition(instance, "LiveMigratable");
        let why = migratable.filter(|condition| condition["status"] == "False")?;
        (strategy == Some("LiveMigrate")).then(|| BoundMachine {
            name: name(instance),
            why: why["message"].as_str().unwrap_or("KubeVirt gives no reason").to_owned(),
        })
    };
    machines_on(instances, node).iter().filter_map(stays).collect()
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// The volumes that are attached to `node` (Kubernetes API, VolumeAttachment v1).
pub(super) fn attached(attachments: &Value, node: &str) -> Vec<String> {
    let here = items(attachments).filter(|attachment| attachment["spec"]["nodeName"] == node);
    here.map(|attachment| {
        let volume = attachment["spec"]["source"]["persistentVolumeName"].as_str();
        volume.or(attachment["metadata"]["name"].as_str()).unwrap_or_default().to_owned()
    })
    .collect()
}

/// Whether Longhorn keeps a node from being drained that has the last whole replica of a volume, by its setting `node-drain-policy`: so
/// it does unless it is told otherwise. With the other policies it makes another replica meanwhile, or lets the node go.
pub(super) fn keeps_last_replica(setting: &Value) -> bool {
    matches!(setting["value"].as_str(), None | Some("" | "block-if-contains-last-replica"))
}

/// Volumes in use that would stop without `node`: every whole replica of theirs is there (Longhorn API, Volume and Replica v1beta2). A
/// replica is whole from when its rebuilding has ended (`healthyAt`) until it fails (`failedAt`), and of use while it runs. How many there
/// should be does not matter: three are never to be had on two nodes. A volume that nobody uses, or that has no whole replica
/// anywhere, is worse off by no restart.
pub(super) fn stranded(volumes: &Value, replicas: &Value, node: &str) -> Vec<StrandedVolume> {
    let said = |field: &Value| field.as_str().is_some_and(|text| !text.is_empty());
    let is_here = |replica: &Value| replica["spec"]["nodeID"] == node;
    let is_whole = |replica: &Value| {
        said(&replica["spec"]["healthyAt"]) && replica["status"]["currentState"] == "running"
    };
    let last_here = |volume: &Value| {
        let of_it = |replica: &&Value| {
            replica["spec"]["volumeName"] == volume["metadata"]["name"] && !said(&replica["spec"]["failedAt"])
        };
        let all: Vec<_> = items(replicas).filter(of_it).collect();
        let whole: Vec<_> = all.iter().filter(|replica| is_whole(replica)).collect();
        let stays = !whole.is_empty() && whole.iter().all(|replica| is_here(replica));
        let rebuilds = all.iter().any(|replica| !said(&replica["spec"]["healthyAt"]) && !is_here(replica));
        stays.then(|| StrandedVolume { name: claim(volume), rebuilds })
    };
    let in_use = |volume: &&Value| volume["status"]["state"] != "detached";
    items(volumes).filter(in_use).filter_map(last_here).collect()
}

/// The claim of one of Longhorn's volumes, as its users know it; its own name where there is none.
fn claim(volume: &Value) -> String {
    let of = &volume["status"]["kubernetesStatus"];
    match (of["namespace"].as_str(), of["pvcName"].as_str()) {
        (Some(namespace), Some(claim)) if !claim.is_empty() => format!("{namespace}/{claim}"),
        _ => volume["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Pods that a drain evicts: neither those of DaemonSets, nor the kubelet's own, nor those that are over, nor jobs of
/// system-upgrade-controller, which drive updates.
pub(super) fn evictable(pods: &Value) -> Vec<&Value> {
    let leaves = |pod: &&Value| {
        let metadata = &pod["metadata"];
        let mirror = metadata["annotations"]["kubernetes.io/config.mirror"].is_string();
        let owners = metadata["ownerReferences"].as_array();
        let daemon = owners.is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "DaemonSet"));
        let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        !mirror && !daemon && !over && metadata["labels"][UPGRADE_JOB].is_null()
    };
    items(pods).filter(leaves).collect()
}

/// The label of the pods that system-upgrade-controller makes.
pub(super) const UPGRADE_JOB: &str = "upgrade.cattle.io/controller";

/// Those of `pods` that lose the content of an `emptyDir` on a disk.
pub(super) fn with_scratch(pods: &[&Value]) -> Vec<String> {
    let has = |pod: &&&Value| {
        let volumes = pod["spec"]["volumes"].as_array();
        volumes.is_some_and(|volumes| volumes.iter().any(|volume| volume["emptyDir"].is_object()))
    };
    pods.iter().filter(has).map(|pod| name(pod)).collect()
}

/// What keeps each of `pods` from being evicted: the PodDisruptionBudgets that allow no disruption now (Kubernetes API,
/// PodDisruptionBudget v1). kubectl does not tell their names.
pub(super) fn budgets(pods: &[&Value], budgets: &Value) -> Vec<String> {
    let blocking = |pod: &Value| {
        let of = |budget: &&Value| {
            let exhausted = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) == 0;
            let same = budget["metadata"]["namespace"] == pod["metadata"]["namespace"];
            exhausted && same && selects(&budget["spec"]["selector"], &pod["metadata"]["labels"])
        };
        items(budgets).filter(of).map(name).collect::<Vec<_>>()
    };
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods {
        for budget in blocking(pod) {
            found.entry(budget).or_default().push(name(pod));
        }
    }
    let told = |(budget, pods): (String, Vec<String>)| {
        format!("PodDisruptionBudget {budget} keeps {}", pods.join(", "))
    };
    found.into_iter().map(told).collect()
}

/// Whether a selector takes these labels (Kubernetes API, LabelSelector). An empty one takes all.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object();
    let equal = equal.is_none_or(|wanted| wanted.iter().all(|(name, value)| labels[name] == *value));
    let holds = |expression: &Value| {
        let value = &labels[expression["key"].as_str().unwrap_or_default()];
        let listed = expression["values"].as_array().is_some_and(|values| values.contains(value));
        match expression["operator"].as_str() {
            Some("In") => listed,
            Some("NotIn") => !listed,
            Some("Exists") => !value.is_null(),
            Some("DoesNotExist") => value.is_null(),
            _ => false,
        }
    };
    let expressions = selector["matchExpressions"].as_array();
    !selector.is_null() && equal && expressions.is_none_or(|all| all.iter().all(holds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::Digest;
    use serde_json::json;

    fn list(items: &[Value]) -> Value {
        json!({ "items": items })
    }

    #[test]
    fn a_node_is_known_by_its_labels_and_its_annotations() {
        let seen = |labels: Value, annotations: Value, cordoned: bool| {
            let node = json!({
                "metadata": { "name": "n1", "labels": labels, "annotations": annotations },
                "spec": { "unschedulable": cordoned },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            });
            GateNode::of(&serde_json::from_value(node).unwrap())
        };
        let kubeadm = seen(json!({ CONTROL_PLANE: "" }), json!({}), true);
        assert_eq!((kubeadm.part, kubeadm.ready, kubeadm.leaving), (RolloutPart::Server, true, false));
        assert_eq!((kubeadm.state, kubeadm.about), (None, None));
        let rke2 = seen(json!({ CONTROL_PLANE: "true", ETCD: "true" }), json!({}), false);
        assert_eq!(rke2.part, RolloutPart::Server);
        assert_eq!(seen(json!({ ETCD: "true" }), json!({}), false).part, RolloutPart::Witness);
        let digest = Digest::of(b"new");
        let annotations = json!({ LEAVING: "true", STATE: "good", DIGEST: digest.to_string() });
        let worker = seen(json!({}), annotations.clone(), true);
        assert_eq!((worker.part, worker.leaving), (RolloutPart::Worker, true));
        assert_eq!((worker.state, worker.about), (Some(ReportedState::Good), Some(digest)));
        assert!(!seen(json!({}), annotations, false).leaving, "somebody uncordoned it");
    }

    #[test]
    fn machines_that_want_to_be_moved_and_cannot_are_bound() {
        let machine = |name: &str, node: &str, strategy: &str, movable: &str, phase: &str| {
            json!({
                "metadata": { "namespace": "shop", "name": name },
                "spec": { "evictionStrategy": strategy },
                "status": { "nodeName": node, "phase": phase, "conditions": [
                    { "type": "LiveMigratable", "status": movable, "message": "it has a PCI device" }] },
            })
        };
        let instances = list(&[
            machine("bound", "n1", "LiveMigrate", "False", "Running"),
            machine("movable", "n1", "LiveMigrate", "True", "Running"),
            machine("may-stop", "n1", "LiveMigrateIfPossible", "False", "Running"),
            machine("over", "n1", "LiveMigrate", "False", "Succeeded"),
            machine("elsewhere", "n2", "LiveMigrate", "False", "Running"),
        ]);
        let expected = BoundMachine { name: "shop/bound".into(), why: "it has a PCI device".into() };
        assert_eq!(bound(&instances, "n1"), [expected]);
        assert_eq!(names(&machines_on(&instances, "n1")), ["shop/bound", "shop/movable", "shop/may-stop"]);
    }

    #[test]
    fn volumes_are_those_of_the_node() {
        let attachment = |node: &str, volume: &str| json!({ "metadata": { "name": "a" }, "spec": { "nodeName": node, "source": { "persistentVolumeName": volume } } });
        let all = list(&[attachment("n1", "pv-1"), attachment("n2", "pv-2")]);
        assert_eq!(attached(&all, "n1"), ["pv-1"]);
        assert_eq!(attached(&json!({}), "n1"), [""; 0]);
    }

    /// A replica on a node: whole, failed, being made, or whole and stopped.
    fn replica(volume: &str, (node, state): (&str, &str)) -> Value {
        let (healthy, failed) = match state {
            "whole" | "stopped" => ("2030-01-01T00:00:00Z", ""),
            "failed" => ("2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z"),
            _ => ("", ""),
        };
        let runs = if state == "stopped" { "stopped" } else { "running" };
        json!({
            "spec": { "volumeName": volume, "nodeID": node, "healthyAt": healthy, "failedAt": failed },
            "status": { "currentState": runs },
        })
    }

    #[test]
    fn longhorn_keeps_the_last_replica_unless_it_is_told_otherwise() {
        for (policy, keeps) in [
            (Value::Null, true),
            (json!({ "value": "" }), true),
            (json!({ "value": "block-if-contains-last-replica" }), true),
            (json!({ "value": "block-for-eviction" }), false),
            (json!({ "value": "block-for-eviction-if-contains-last-replica" }), false),
            (json!({ "value": "allow-if-replica-is-stopped" }), false),
            (json!({ "value": "always-allow" }), false),
        ] {
            assert_eq!(keeps_last_replica(&policy), keeps, "{policy}");
        }
    }

    #[test]
    fn volumes_are_stranded_by_where_their_whole_replicas_are_and_not_by_how_many() {
        /// State, robustness, replicas, and whether the volume keeps the node and may stop to.
        type Case = (&'static str, &'static str, &'static [(&'static str, &'static str)], Option<bool>);
        let (free, stays, waits) = (None, Some(false), Some(true));
        let cases: [Case; 14] = [
            ("attached", "healthy", &[("n1", "whole"), ("n2", "whole"), ("n3", "whole")], free),
            ("attached", "healthy", &[("n2", "whole"), ("n3", "whole")], free),
            ("attached", "healthy", &[("n1", "whole")], stays),
            ("attached", "healthy", &[("n2", "whole")], free),
            // Three are wanted, and there are two nodes.
            ("attached", "degraded", &[("n1", "whole"), ("n2", "whole")], free),
            ("attached", "degraded", &[("n1", "whole"), ("n2", "failed")], stays),
            ("attached", "degraded", &[("n1", "failed"), ("n2", "whole")], free),
            ("attached", "degraded", &[("n1", "whole"), ("n2", "made"), ("n3", "failed")], waits),
            ("attached", "degraded", &[("n1", "made"), ("n2", "whole")], free),
            ("attached", "degraded", &[("n1", "whole"), ("n1", "made")], stays),
            ("attached", "degraded", &[("n1", "whole"), ("n2", "stopped")], stays),
            ("attaching", "unknown", &[("n1", "whole")], stays),
            ("detached", "unknown", &[("n1", "whole")], free),
            ("detached", "faulted", &[("n1", "failed"), ("n2", "failed")], free),
        ];
        for (state, robustness, replicas, expected) in cases {
            let volume = json!({
                "metadata": { "name": "pvc-1" },
                "status": {
                    "state": state, "robustness": robustness,
                    "kubernetesStatus": { "namespace": "shop", "pvcName": "data" },
                },
            });
            let mut all: Vec<_> = replicas.iter().map(|place| replica("pvc-1", *place)).collect();
            all.push(replica("pvc-2", ("n2", "whole")));
            let found = stranded(&list(&[volume]), &list(&all), "n1");
            let expected = expected.map(|rebuilds| StrandedVolume { name: "shop/data".into(), rebuilds });
            assert_eq!(found.first(), expected.as_ref(), "{state} {robustness} {replicas:?}");
        }
        let nameless = json!({ "metadata": { "name": "pvc-1" }, "status": { "state": "attached" } });
        let found = stranded(&list(&[nameless]), &list(&[replica("pvc-1", ("n1", "whole"))]), "n1");
        assert_eq!(found[0].name, "pvc-1");
    }

    #[test]
    fn pods_that_leave_are_told_with_what_they_lose_and_what_keeps_them() {
        let pod = |name: &str, metadata: Value, volumes: Value| {
            let mut pod = json!({ "metadata": metadata, "spec": { "volumes": volumes }, "status": { "phase": "Running" } });
            pod["metadata"]["name"] = json!(name);
            pod["metadata"]["namespace"] = json!("shop");
            pod
        };
        let web = json!({ "labels": { "app": "web" } });
        let pods = list(&[
            pod(
                "web",
                web.clone(),
                json!([{ "name": "scratch", "emptyDir": {} }, { "name": "c", "configMap": {} }]),
            ),
            pod("daemon", json!({ "ownerReferences": [{ "kind": "DaemonSet" }] }), json!([])),
            pod("static", json!({ "annotations": { "kubernetes.io/config.mirror": "x" } }), json!([])),
            pod("job", json!({ "labels": { UPGRADE_JOB: "system-upgrade-controller" } }), json!([])),
        ]);
        let leaving = evictable(&pods);
        assert_eq!(names(&leaving), ["shop/web"]);
        assert_eq!(with_scratch(&leaving), ["shop/web"]);
        let budget = |name: &str, namespace: &str, allowed: u32, selector: Value| json!({ "metadata": { "namespace": namespace, "name": name }, "spec": { "selector": selector }, "status": { "disruptionsAllowed": allowed } });
        let all = list(&[
            budget("blocks", "shop", 0, json!({ "matchLabels": { "app": "web" } })),
            budget("allows", "shop", 1, json!({ "matchLabels": { "app": "web" } })),
            budget("elsewhere", "other", 0, json!({ "matchLabels": { "app": "web" } })),
            budget("others", "shop", 0, json!({ "matchLabels": { "app": "db" } })),
        ]);
        assert_eq!(budgets(&leaving, &all), ["PodDisruptionBudget shop/blocks keeps shop/web"]);
    }

    #[test]
    fn selectors_choose_as_in_kubernetes() {
        let labels = json!({ "app": "web", "tier": "front" });
        let by = |operator: &str, key: &str, values: &[&str]| {
            let selector =
                json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
            selects(&selector, &labels)
        };
        assert!(by("In", "app", &["db", "web"]) && !by("In", "app", &["db"]) && !by("In", "none", &["x"]));
        assert!(by("NotIn", "app", &["db"]) && !by("NotIn", "app", &["web"]) && by("NotIn", "none", &["x"]));
        assert!(by("Exists", "tier", &[]) && !by("Exists", "none", &[]));
        assert!(by("DoesNotExist", "none", &[]) && !by("DoesNotExist", "tier", &[]));
        assert!(!by("Resembles", "app", &["web"]));
        assert!(selects(&json!({}), &labels) && !selects(&Value::Null, &labels));
        assert!(!selects(&json!({ "matchLabels": { "app": "web", "tier": "back" } }), &labels));
    }
}
