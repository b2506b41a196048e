//! Requests of node updates to a real cluster, and their effects: reports with the access of kubelets, the gate, the lock, a drain
//! that a PodDisruptionBudget holds up. No node restarts here, but in [`rolling`] at the end.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::cancel::Cancel;
use base::command::SystemRunner;
use base::digest::Digest;
use base::failure::{class_of, render};
use cluster::rollout::report::ReportedState;
use cluster::rollout::{DepartureRequest, Drain, NodeDeparture, NodeReport, RolloutRecord, UpdateOutcome};
use machine::update_state::ReleaseId;
use model::config::Role;
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::native_cluster::{ClusterNode, POD_IMAGE, TestCluster};
use nqrust_tests::node::Checks;
use serde_json::{Value, json};

use super::figures::Figures;
use super::rolling;

const ROOT: &str = "/";
/// An administrator's access on a node that has none of its own.
pub(super) const GIVEN: &str = "/run/given.conf";
/// Until pods run, or are gone.
const RUN: Duration = Duration::from_secs(180);
const ACCESS: &str = include_str!("../../../../configs/rollouts/access.yaml");

/// Three members of etcd: while one is away the API answers still.
pub(super) fn nodes() -> Vec<ClusterNode> {
    vec![
        ClusterNode::new("node-1", Role::Management, 11),
        ClusterNode::new("node-2", Role::Management, 12),
        ClusterNode::new("node-3", Role::Witness, 13),
        ClusterNode::new("node-4", Role::Worker, 21),
    ]
}

pub(super) fn check(cluster: &mut TestCluster, figures: &mut Figures<'_>) -> Result<()> {
    cluster.create(&mut |part| figures.done(part))?;
    cluster.join_all(&["node-2", "node-3", "node-4"], &mut |part| figures.done(part))?;
    reports(cluster)?;
    figures.done("every node has told of itself, once")?;
    let access = cluster.node("node-1")?.run("cat /etc/kubernetes/admin.conf")?;
    cluster
        .node("node-4")?
        .within(|| base::files::write_atomically(Path::new(GIVEN), access.as_bytes(), 0o600))??;
    order(cluster)?;
    figures.done("the order is kept, and etcd was asked")?;
    blocked_drain(cluster)?;
    figures.done("a budget has held up a drain")?;
    stranded_volume(cluster)?;
    figures.done("a volume with its only replica on the node has kept it")?;
    whole_drain(cluster)?;
    figures.done("a node was emptied, and the rollout stopped")?;
    service_account(cluster)?;
    figures.done("the account of the runner is enough")?;
    rolling::check(cluster, figures)
}

fn release(name: &str) -> ReleaseId {
    ReleaseId { digest: Digest::of(name.as_bytes()), version: name.to_owned() }
}

pub(super) fn tell(cluster: &TestCluster, node: &str, state: ReportedState, about: &str) -> Result<()> {
    let (version, slot, reason) = (about.to_owned(), "b".to_owned(), String::new());
    let report = NodeReport { version, slot, state, about: release(about), reason };
    let told = cluster.node(node)?.within(|| report.tell(Path::new(ROOT)))?;
    told.map_err(|why| anyhow::anyhow!("{node}: {why}"))
}

fn annotation(cluster: &TestCluster, node: &str, name: &str) -> Result<Value> {
    Ok(cluster.kubectl().get(&["node", node])?["metadata"]["annotations"][name].clone())
}

fn reports(cluster: &TestCluster) -> Result<()> {
    let mut checks = Checks::default();
    for node in ["node-1", "node-2", "node-3", "node-4"] {
        tell(cluster, node, ReportedState::Good, "old")?;
        tell(cluster, node, ReportedState::Good, "old")?;
        let state = annotation(cluster, node, "nqrust.io/update-state")?;
        checks.equal(&format!("the state of {node}"), &state, &json!("good"));
        let digest = annotation(cluster, node, "nqrust.io/update-digest")?;
        checks.equal(&format!("the release of {node}"), &digest, &json!(release("old").digest.to_string()));
        let field = format!("--field-selector=involvedObject.name={node},reason=UpdateGood");
        let events = cluster.kubectl().list(&["events", "--namespace", "default", &field]);
        checks.equal(&format!("the events of {node}"), events.len(), 1);
    }
    let failed = NodeReport {
        version: "old".into(),
        slot: "a".into(),
        state: ReportedState::RolledBack,
        about: release("bad"),
        reason: "kubelet: it does not answer".into(),
    };
    cluster.node("node-4")?.within(|| failed.tell(Path::new(ROOT)))?.map_err(anyhow::Error::msg)?;
    let described = cluster.kubectl().run(&["describe", "node", "node-4"])?;
    checks.that(
        &format!("kubectl describe shows a rollback: {described}"),
        described.contains("bad was taken back, old runs again: kubelet: it does not answer"),
    );
    tell(cluster, "node-4", ReportedState::Good, "old")?;
    let reason = annotation(cluster, "node-4", "nqrust.io/update-reason")?;
    checks.equal("the reason after it", &reason, &Value::Null);
    checks.finish("what nodes report")
}

/// How a node leaves, and the access that it does so with; by default its own.
pub(super) struct Departure {
    pub(super) request: DepartureRequest,
    access: Option<&'static Path>,
}

pub(super) fn departure(drain: Drain, timeout: Duration) -> Departure {
    let request = DepartureRequest { drain, timeout, wait: Duration::ZERO, retry: false };
    Departure { request, access: None }
}

pub(super) fn given(departure: Departure) -> Departure {
    Departure { access: Some(Path::new(GIVEN)), ..departure }
}

/// The exit code and the output of a departure.
pub(super) fn leave(
    cluster: &TestCluster,
    node: &str,
    departure: &Departure,
    about: &str,
) -> Result<(u8, String)> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    cluster.node(node)?.within(|| {
        let node_departure = NodeDeparture::open(Path::new(ROOT), &SystemRunner, departure.access, &|_| ());
        let left = node_departure.and_then(|node_departure| {
            node_departure.leave(&departure.request, &release(about), &Cancel::new(&NEVER))
        });
        left.map_or_else(|error| (class_of(&error).exit_code(), render(&error)), |()| (0, String::new()))
    })
}

pub(super) fn undo(cluster: &TestCluster, node: &str, outcome: &UpdateOutcome) -> Result<()> {
    cluster.node(node)?.within(|| {
        NodeDeparture::open(Path::new(ROOT), &SystemRunner, None, &|_| ())?.undo(outcome)?;
        ensure!(RolloutRecord::read(Path::new(ROOT)).is_none(), "there is something to undo still");
        ensure!(RolloutRecord::kept_access(Path::new(ROOT)).is_none(), "the access is kept");
        Ok(())
    })?
}

/// The holder of the lock of the cluster's updates.
pub(super) fn holder(cluster: &TestCluster) -> Result<Value> {
    Ok(cluster.kubectl().get(&["lease", "nqrust-update", "--namespace", "kube-system"])?["spec"]["holderIdentity"]
        .clone())
}

pub(super) fn is_cordoned(cluster: &TestCluster, node: &str) -> Result<bool> {
    Ok(cluster.kubectl().get(&["node", node])?["spec"]["unschedulable"] == true)
}

fn order(cluster: &TestCluster) -> Result<()> {
    let external = || departure(Drain::External, Duration::ZERO);
    let (code, told) = leave(cluster, "node-4", &external(), "new")?;
    ensure!(code == 3 && told.contains("--kubeconfig FILE"), "a worker has no access: {code} {told}");
    let (code, told) = leave(cluster, "node-4", &given(external()), "new")?;
    ensure!(code == 3 && told.contains("servers come first"), "a worker: {code} {told}");
    ensure!(holder(cluster).is_err(), "who may not leave takes no lock");
    // The witness does not answer; the server asks its etcd.
    cluster.switch.plug("port-node-3", false)?;
    let unfit = Deadline::after(RUN).poll("the gate missing a member of etcd", || {
        let (code, told) = leave(cluster, "node-1", &external(), "new")?;
        Ok((code == 3 && told.contains("the member node-3 of etcd is not healthy")).then_some(()))
    });
    cluster.switch.plug("port-node-3", true)?;
    unfit?;
    Deadline::after(RUN).poll("the gate for the server", || {
        let (code, _) = leave(cluster, "node-1", &external(), "new")?;
        Ok((code == 0).then_some(()))
    })?;
    ensure!(holder(cluster)? == "node-1" && !is_cordoned(cluster, "node-1")?);
    undo(cluster, "node-1", &UpdateOutcome::Good)?;
    ensure!(holder(cluster)? == Value::Null, "the lock is free");
    for node in ["node-1", "node-2", "node-3"] {
        tell(cluster, node, ReportedState::Good, "new")?;
    }
    Ok(())
}

/// A pod that runs on the worker alone, and a budget that never lets it go.
fn workload() -> Value {
    let labels = json!({ "app": "kept" });
    let container = json!({ "name": "kept", "image": POD_IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", "mkdir -p /www && exec httpd -f -p 8081 -h /www"] });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "kept" },
            "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "nodeSelector": { "kubernetes.io/hostname": "node-4" },
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    "volumes": [{ "name": "scratch", "emptyDir": {} }],
                },
            } },
        },
        {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "always-one" },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": labels } },
        },
    ] })
}

/// The pods of the workload that run on the worker.
fn running(cluster: &TestCluster) -> usize {
    let pods =
        cluster.kubectl().list(&["pods", "--selector", "app=kept", "--field-selector=spec.nodeName=node-4"]);
    pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count()
}

fn blocked_drain(cluster: &TestCluster) -> Result<()> {
    Deadline::after(RUN).poll("the manifest of the workload", || {
        Ok(cluster.kubectl().apply(&workload()).is_ok().then_some(()))
    })?;
    Deadline::after(RUN)
        .every(CLUSTER_INTERVAL)
        .poll("a pod on the worker", || Ok((running(cluster) == 1).then_some(())))?;
    let own = given(departure(Drain::Own, Duration::from_secs(10)));
    let (code, told) = leave(cluster, "node-4", &own, "new")?;
    ensure!(code == 3, "{code} {told}");
    ensure!(told.contains("PodDisruptionBudget default/always-one keeps default/kept-"), "{told}");
    ensure!(!is_cordoned(cluster, "node-4")?, "what was cordoned is uncordoned");
    ensure!(holder(cluster)? == Value::Null, "and the lock is free");
    ensure!(running(cluster) == 1, "the pod is where it was");
    Ok(())
}

/// Longhorn's kinds as far as they are read, with whatever fields.
fn longhorn() -> Value {
    let kind = |plural: &str, singular: &str, kind: &str| {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let version = json!({ "name": "v1beta2", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.longhorn.io") },
            "spec": {
                "group": "longhorn.io", "scope": "Namespaced", "versions": [version],
                "names": { "plural": plural, "singular": singular, "kind": kind },
            },
        })
    };
    let items = [
        ("volumes", "volume", "Volume"),
        ("replicas", "replica", "Replica"),
        ("settings", "setting", "Setting"),
    ]
    .map(|(plural, singular, name)| kind(plural, singular, name));
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// A volume in use with a whole replica on each of `nodes`.
fn volume(nodes: &[&str]) -> Value {
    let object = |kind: &str, name: &str, spec: Value, status: Value| json!({ "apiVersion": "longhorn.io/v1beta2", "kind": kind, "metadata": { "name": name, "namespace": "default" }, "spec": spec, "status": status });
    let claim = json!({ "namespace": "shop", "pvcName": "data" });
    let status = json!({ "state": "attached", "robustness": "degraded", "kubernetesStatus": claim });
    let mut items = vec![object("Volume", "pvc-1", json!({ "numberOfReplicas": 3 }), status)];
    items.extend(nodes.iter().map(|node| {
        let spec = json!({ "volumeName": "pvc-1", "nodeID": node, "healthyAt": "2030-01-01T00:00:00Z", "failedAt": "" });
        object("Replica", &format!("pvc-1-{node}"), spec, json!({ "currentState": "running" }))
    }));
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

/// The account of the runner has to be able to see it as well, so the definitions stay.
fn stranded_volume(cluster: &TestCluster) -> Result<()> {
    cluster.kubectl().apply(&longhorn())?;
    // The API takes objects of a new kind some moments later.
    let put = |nodes: &[&str]| {
        Deadline::after(RUN)
            .poll("the volume", || Ok(cluster.kubectl().apply(&volume(nodes)).is_ok().then_some(())))
    };
    put(&["node-4"])?;
    let external = given(departure(Drain::External, Duration::ZERO));
    let (code, told) = leave(cluster, "node-4", &external, "new")?;
    ensure!(code == 3, "{code} {told}");
    ensure!(told.contains("no other node has a whole replica of the volume shop/data"), "{told}");
    ensure!(holder(cluster)? == Value::Null, "who may not leave gives the lock back");
    // It is degraded still, and does not need this node.
    put(&["node-4", "node-1"])?;
    let (code, told) = leave(cluster, "node-4", &external, "new")?;
    ensure!(code == 0, "{code} {told}");
    undo(cluster, "node-4", &UpdateOutcome::Good)
}

fn whole_drain(cluster: &TestCluster) -> Result<()> {
    cluster.kubectl().run(&["delete", "poddisruptionbudget", "always-one"])?;
    let own = given(departure(Drain::Own, Duration::from_secs(120)));
    let (code, told) = leave(cluster, "node-4", &own, "new")?;
    ensure!(code == 0, "{code} {told}");
    ensure!(is_cordoned(cluster, "node-4")? && holder(cluster)? == "node-4");
    ensure!(running(cluster) == 0, "the node is empty");
    let mark = annotation(cluster, "node-4", "nqrust.io/update-cordoned")?;
    ensure!(mark == "true", "{mark}");
    let external = departure(Drain::External, Duration::ZERO);
    let (code, told) = leave(cluster, "node-1", &external, "new")?;
    ensure!(code == 8 && told.contains("node-4 is being updated"), "{code} {told}");
    undo(cluster, "node-4", &UpdateOutcome::RolledBack("the kubelet never answered".into()))?;
    ensure!(!is_cordoned(cluster, "node-4")?, "a node that has rolled back takes pods");
    Deadline::after(RUN)
        .every(CLUSTER_INTERVAL)
        .poll("the pod coming back", || Ok((running(cluster) == 1).then_some(())))?;
    let (code, told) = leave(cluster, "node-1", &external, "new")?;
    ensure!(code == 3 && told.contains("node-4 took it back: the kubelet never answered"), "{code} {told}");
    let mut retry = external;
    retry.request.retry = true;
    let (code, told) = leave(cluster, "node-1", &retry, "new")?;
    ensure!(code == 0, "{code} {told}");
    undo(cluster, "node-1", &UpdateOutcome::Good)
}

/// Gives node-4 a token of the account of configs/rollouts/access.yaml, for itself or for no node.
fn give_token(cluster: &TestCluster, of_node: bool) -> Result<()> {
    let mut words = vec!["create", "token", "nqrust-update", "--namespace", "system-upgrade"];
    if of_node {
        words.extend(["--bound-object-kind", "Node", "--bound-object-name", "node-4"]);
    }
    let token = cluster.kubectl().run(&words)?;
    let mut access: Value = serde_yaml::from_str(&cluster.node("node-4")?.run(&format!("cat {GIVEN}"))?)?;
    access["users"][0]["user"] = json!({ "token": token.trim() });
    let text = access.to_string();
    cluster
        .node("node-4")?
        .within(|| base::files::write_atomically(Path::new(GIVEN), text.as_bytes(), 0o600))?
}

/// Attempts with the token of a stolen node.
fn own_node_only(cluster: &TestCluster) -> Result<()> {
    let node = cluster.node("node-4")?;
    let call = |words: &str| node.call(&format!("kubectl --kubeconfig {GIVEN} {words}"));
    let cordon = |name: &str| {
        format!("patch node {name} --type=merge --patch '{{\"spec\":{{\"unschedulable\":true}}}}'")
    };
    give_token(cluster, false)?;
    // The API server takes a policy up some moments after it was made.
    Deadline::after(RUN).every(CLUSTER_INTERVAL).poll("the policy for tokens of no node", || {
        let refused = call(&cordon("node-4"))?;
        Ok((refused.code != 0 && refused.said().contains("names no node")).then_some(()))
    })?;
    cluster.kubectl().run(&["uncordon", "node-4"])?;
    give_token(cluster, true)?;
    let foreign = cluster.kubectl().list(&[
        "pods",
        "--namespace",
        "kube-system",
        "--field-selector=spec.nodeName=node-1",
    ]);
    let pod = foreign.first().context("a pod on node-1")?["metadata"]["name"].as_str().unwrap_or_default();
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": "kube-system" },
    });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "nqrust-update", "namespace": "kube-system" }, "spec": { "holderIdentity": "node-1" },
    });
    let raw = format!("create --raw /api/v1/namespaces/kube-system/pods/{pod}/eviction --filename -");
    for (what, words, input, why) in [
        ("another node", cordon("node-1"), Value::Null, "another node"),
        ("a label", "label node node-4 example.org/x=y".into(), Value::Null, "no label"),
        (
            "an annotation",
            "annotate node node-4 nqrust.io/update-reason=another --overwrite".into(),
            Value::Null,
            "no annotation",
        ),
        ("a taint", "taint node node-4 example.org/x=y:NoSchedule".into(), Value::Null, "no taint"),
        ("a pod elsewhere", raw, eviction, "another node"),
        ("another's lock", "replace --filename -".into(), lease, "the node of the token"),
    ] {
        let refused = call(&format!("{words} <<'END'\n{input}\nEND"))?;
        ensure!(
            refused.code != 0 && refused.said().contains(why),
            "{what}: {} {}",
            refused.code,
            refused.said()
        );
    }
    Ok(())
}

/// The account of configs/rollouts/access.yaml may do all that a worker needs, and nothing of what an administrator may besides.
fn service_account(cluster: &TestCluster) -> Result<()> {
    let kubectl = cluster.kubectl();
    kubectl.call(&["apply", "--filename", "-"], ACCESS)?.success("applying access.yaml")?;
    own_node_only(cluster)?;
    let own = given(departure(Drain::Own, Duration::from_secs(120)));
    let (code, told) = leave(cluster, "node-4", &own, "new")?;
    ensure!(code == 0 && is_cordoned(cluster, "node-4")?, "{code} {told}");
    undo(cluster, "node-4", &UpdateOutcome::Good)?;
    ensure!(!is_cordoned(cluster, "node-4")? && holder(cluster)? == Value::Null);
    let refused = cluster
        .node("node-4")?
        .call(&format!("kubectl --kubeconfig {GIVEN} get secrets --all-namespaces"))
        .context("asking for secrets")?;
    ensure!(refused.code != 0 && refused.said().contains("forbidden"), "{}", refused.said());
    Ok(())
}
