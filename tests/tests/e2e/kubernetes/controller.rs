//! The update of a cluster by the real system-upgrade-controller, with the plans and the account of `configs/rollouts` and the image of
//! the runner, in which only the release is filled in. The controller runs as its manifests say, and its jobs run on the nodes'
//! kubelets: each starts `installer update apply` in its node's root, which stages the release in the slot that does not run,
//! passes the gate, drains the node and asks for a restart.
//!
//! That restart is doubled, and nothing else: the node loses its power when the service manager would end it; in place of GRUB stands
//! the function that it is tested against; and the OS is the same whichever slot was started ([`NodeDisk`]). Then `installer bless`
//! judges the boot, as its unit does.
//!
//! The first server does not load the release and goes back, which ends the rollout. Its disk is mended, the plans get `--retry`, and
//! all nodes are updated.
//!
//! [`NodeDisk`]: nqrust_tests::native_cluster::NodeDisk

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::digest::Digest;
use model::boot::Slot;
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::http::Server;
use nqrust_tests::native_cluster::{NativeNode, POD_IMAGE, Switch, TestCluster, is_ready, small_medium};
use nqrust_tests::{paths, programs};
use serde_json::{Value, json};

use super::figures::Figures;
use super::rollout::{holder, is_cordoned};
use super::rollout_check;

const ACCESS: &str = include_str!("../../../../configs/rollouts/access.yaml");
const PLANS: &str = include_str!("../../../../configs/rollouts/plans.yaml");
const NAMESPACE: &str = "--namespace=system-upgrade";
/// The version before, and the one that the plans name.
const OLD: &str = "1.2.0";
const NEW: &str = "1.3.0";
const SERVERS: [&str; 2] = ["node-1", "node-2"];
const WITNESS: &str = "node-3";
const WORKER: &str = "node-4";
const PORT: u16 = 8088;
/// As the manifests of the controller's releases have it.
const CONTROLLER_IMAGE: &str = "rancher/system-upgrade-controller:v0.20.1";
const COMMAND: Duration = Duration::from_secs(120);
/// Until pods run.
const RUN: Duration = Duration::from_secs(180);
/// For a service manager to end the programs of a machine that restarts, its kubelet among them.
const END: Duration = Duration::from_secs(5);
/// For a node: its pod, staging, drain, restart, the minute in which a boot has to be good.
const NODE: Duration = Duration::from_secs(360);

pub(super) fn check(cluster: &mut TestCluster, directory: &Path, figures: &mut Figures<'_>) -> Result<()> {
    let digest = prepare(cluster, directory)?;
    cluster.create(&mut |part| figures.done(part))?;
    cluster.join_all(&[SERVERS[1], WITNESS, WORKER], &mut |part| figures.done(part))?;
    for node in cluster.running() {
        judge(node)?;
    }
    start_controller(cluster)?;
    figures.done("the controller runs")?;
    Deadline::after(RUN).every(CLUSTER_INTERVAL).poll("reports of all nodes", || {
        let nodes = cluster.kubectl().list(&["nodes"]);
        let reports = |node: &Value| node["metadata"]["annotations"]["nqrust.io/os-version"] == OLD;
        Ok((nodes.len() == cluster.nodes().len() && nodes.iter().all(reports)).then_some(()))
    })?;
    let _server = Server::on(cluster.switch.network().listen(PORT)?, &directory.join(NEW))?;
    let asked =
        rollout_check::check(cluster, &format!("http://{}:{PORT}", Switch::ADMINISTRATOR), digest, NEW);
    asked.context("asking all nodes before the rollout")?;
    figures.done("every node was asked whether it could take the release")?;
    let done = roll_out(cluster, digest, figures);
    if done.is_err() {
        figures.keep("controller.txt", &told(cluster))?;
    }
    done
}

/// Gives every node a disk with the old release, and the images of the runner and of the controller.
fn prepare(cluster: &mut TestCluster, directory: &Path) -> Result<Digest> {
    let kubernetes = cluster.release().version.clone();
    small_medium(&directory.join(OLD), OLD, &kubernetes)?;
    let digest = small_medium(&directory.join(NEW), NEW, &kubernetes)?;
    let names: Vec<_> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
    for name in names {
        cluster.give_disk(&name, &directory.join(OLD))?;
    }
    let layout = directory.join("runner-image");
    let mut make = programs::iso_builder()?;
    make.args(["runner-image", "--progress", "plain", "--installer"]).arg(paths::installer()?);
    programs::run(make.arg("-o").arg(&layout), COMMAND)?.success("iso-builder runner-image")?;
    cluster.add_layout(&layout)?;
    let program = controller()?.join("system-upgrade-controller");
    cluster.add_program_image(&program, &format!("docker.io/{CONTROLLER_IMAGE}"))?;
    Ok(digest)
}

/// The output of `make system-upgrade-controller`.
fn controller() -> Result<std::path::PathBuf> {
    let link = paths::target().join("system-upgrade-controller");
    link.canonicalize()
        .with_context(|| format!("{} is missing; run `make system-upgrade-controller`", link.display()))
}

/// Applies our account, and the manifests of the controller with the settings that docs/how-to/cluster-updates.md names.
fn start_controller(cluster: &TestCluster) -> Result<()> {
    let kubectl = cluster.kubectl();
    let text = kubectl.run(&["kustomize", &controller()?.display().to_string()])?;
    let mut items = text.split("\n---\n").map(serde_yaml::from_str).collect::<Result<Vec<Value>, _>>()?;
    let map =
        items.iter_mut().find(|item| item["kind"] == "ConfigMap").context("the controller's settings")?;
    map["data"]["SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY"] = json!("IfNotPresent");
    // Fewer than there: the pauses between its attempts grow to minutes.
    map["data"]["SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT"] = json!("2");
    let deployment = items.iter_mut().find(|item| item["kind"] == "Deployment").context("a Deployment")?;
    // Each release replaces the image of the repository.
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(CONTROLLER_IMAGE);
    kubectl.call(&["apply", "--filename", "-"], ACCESS)?.success("applying access.yaml")?;
    kubectl.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items }))?;
    kubectl.apply(&workload())?;
    Deadline::after(RUN).every(CLUSTER_INTERVAL).poll("the controller's kind", || {
        Ok(kubectl.run(&["get", "plans.upgrade.cattle.io", NAMESPACE]).is_ok().then_some(()))
    })?;
    Deadline::after(RUN)
        .every(CLUSTER_INTERVAL)
        .poll("the workload", || Ok((running(cluster, None) == 2).then_some(())))
}

/// Pods that leave a node which is drained.
fn workload() -> Value {
    let labels = json!({ "app": "shop" });
    let container = json!({ "name": "shop", "image": POD_IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", "mkdir -p /www && exec httpd -f -p 8081 -h /www"] });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "shop", "namespace": "default" },
        "spec": { "replicas": 2, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "terminationGracePeriodSeconds": 0, "containers": [container] },
        } },
    })
}

/// How many pods of the workload run, on one node or in all.
fn running(cluster: &TestCluster, node: Option<&str>) -> usize {
    let field = node.map(|node| format!("--field-selector=spec.nodeName={node}"));
    let words: Vec<_> = ["pods", "--selector=app=shop"].into_iter().chain(field.as_deref()).collect();
    cluster.kubectl().list(&words).iter().filter(|pod| pod["status"]["phase"] == "Running").count()
}

/// The plans of the repository with this release filled in.
fn plans(digest: Digest, more: &str) -> Result<String> {
    let mut text = PLANS.to_owned();
    for (blank, filled) in [
        ("registry.example.com/nqrust/release:1.3.0", format!("http://{}:{PORT}", Switch::ADMINISTRATOR)),
        (&"0".repeat(64), format!("{digest}{more}")),
    ] {
        ensure!(text.matches(blank).count() == 3, "{blank} is to be filled in three times");
        text = text.replace(blank, &filled);
    }
    Ok(text)
}

fn apply_plans(cluster: &TestCluster, digest: Digest, more: &str) -> Result<()> {
    let call = cluster.kubectl().call(&["apply", "--filename", "-"], &plans(digest, more)?)?;
    call.success("applying plans.yaml").map(drop)
}

/// Status, reason and message of the condition `Complete` of each plan, by the role that its name ends with.
fn outcomes(cluster: &TestCluster) -> BTreeMap<String, [String; 3]> {
    let plans = cluster.kubectl().list(&["plans.upgrade.cattle.io", NAMESPACE]);
    let outcome = |plan: &Value| {
        let role = plan["metadata"]["name"].as_str()?.rsplit('-').next()?.to_owned();
        let conditions = plan["status"]["conditions"].as_array()?;
        let complete = conditions.iter().find(|condition| condition["type"] == "Complete")?;
        let text = |key: &str| complete[key].as_str().unwrap_or_default().to_owned();
        Some((role, ["status", "reason", "message"].map(text)))
    };
    plans.iter().filter_map(outcome).collect()
}

/// Everything about the rollout, for the person who reads a failure.
fn told(cluster: &TestCluster) -> String {
    let say = |words: &[&str]| match cluster.kubectl().call(words, "") {
        Ok(told) => format!("$ kubectl {}\n{}\n", words.join(" "), told.said()),
        Err(error) => format!("$ kubectl {}\n{error:#}\n", words.join(" ")),
    };
    let mut text = say(&["get", "nodes,pods,jobs", "--all-namespaces", "--output=wide"]);
    text += &say(&["get", "events", NAMESPACE]);
    text += &say(&["get", "plans.upgrade.cattle.io,jobs", NAMESPACE, "--output=yaml"]);
    for pod in cluster.kubectl().list(&["pods", NAMESPACE]) {
        text += &say(&["logs", NAMESPACE, pod["metadata"]["name"].as_str().unwrap_or_default()]);
    }
    for node in cluster.running() {
        let log = node.call("cat /var/log/pods/system-upgrade_*/*/*; cat /var/log/units/bless.log");
        text += &format!("{}:\n{}\n", node.place().name, log.map(|log| log.said()).unwrap_or_default());
    }
    text
}

fn roll_out(cluster: &mut TestCluster, digest: Digest, figures: &mut Figures<'_>) -> Result<()> {
    apply_plans(cluster, digest, "")?;
    let first = departure(cluster)?;
    ensure!(SERVERS.contains(&first.as_str()), "{first} left first, and servers come first");
    let other = if first == SERVERS[0] { SERVERS[1] } else { SERVERS[0] };
    others_wait(cluster, &first, other)?;
    figures.done(&format!(
        "{first} has left; the witness and the worker wait at the gate, and {other} has no job"
    ))?;
    cluster.disk_mut(&first)?.unloadable = vec![Slot::B];
    restart(cluster, &first)?;
    figures.done(&format!("{first} did not load the release, and runs the one before"))?;
    Deadline::after(NODE).every(CLUSTER_INTERVAL).poll("the end of the three plans", || {
        ensure!(departing(cluster)?.is_none(), "a node leaves after the rollback");
        let all = outcomes(cluster);
        Ok((all.len() == 3 && all.values().all(|[_, reason, _]| reason == "JobFailed")).then_some(()))
    })?;
    stopped(cluster, &first, other)?;
    figures.done("the rollout has stopped with it")?;
    cluster.disk_mut(&first)?.unloadable.clear();
    apply_plans(cluster, digest, " --retry")?;
    let mut order = Vec::new();
    while order.len() < cluster.nodes().len() {
        let name = departure(cluster)?;
        order.push(name.clone());
        restart(cluster, &name)?;
        figures.done(&format!("{name} has left and is back"))?;
    }
    let (servers, rest) = order.split_at(2);
    ensure!(SERVERS.iter().all(|server| servers.iter().any(|name| name == server)), "{order:?}");
    ensure!(rest == [WITNESS, WORKER], "{order:?}");
    Deadline::after(NODE).every(CLUSTER_INTERVAL).poll("the three plans being complete", || {
        ensure!(departing(cluster)?.is_none(), "a node leaves again");
        let all = outcomes(cluster);
        Ok((all.len() == 3 && all.values().all(|[status, ..]| status == "True")).then_some(()))
    })?;
    updated(cluster)?;
    figures.done("all nodes run the release, and the plans are complete")
}

/// The node that has asked its service manager for a restart, if there is one. At no time is a second one cordoned.
fn departing(cluster: &TestCluster) -> Result<Option<String>> {
    let nodes = cluster.kubectl().list(&["nodes"]);
    let cordoned: Vec<_> = nodes.iter().filter(|node| node["spec"]["unschedulable"] == true).collect();
    ensure!(cordoned.len() <= 1, "two nodes are away at once: {cordoned:?}");
    let asks = |node: &&NativeNode| node.succeeds("test -e /run/units/restart");
    let mut asking: Vec<_> =
        cluster.running().iter().filter(asks).map(|node| node.place().name.clone()).collect();
    ensure!(asking.len() <= 1, "{asking:?} restart at once");
    Ok(asking.pop())
}

/// Waits for the next node that leaves, and looks at how it does.
fn departure(cluster: &TestCluster) -> Result<String> {
    let name = Deadline::after(NODE)
        .every(CLUSTER_INTERVAL)
        .poll("the departure of a node", || departing(cluster))?;
    ensure!(is_cordoned(cluster, &name)? && holder(cluster)? == name.as_str(), "{name} has left its cluster");
    ensure!(running(cluster, Some(&name)) == 0, "{name} has pods still");
    let nodes = cluster.kubectl().list(&["nodes"]);
    ensure!(nodes.len() == 4 && nodes.iter().all(is_ready), "the others are ready");
    ensure!(cluster.disk(&name)?.release(Slot::B)?.version == NEW, "the release is in the other slot");
    // The pod must not end with success before the restart: its job would be done without a verdict.
    std::thread::sleep(END);
    let pods =
        cluster.kubectl().list(&["pods", NAMESPACE, &format!("--field-selector=spec.nodeName={name}")]);
    let of_job = |pod: &&Value| pod["metadata"]["labels"]["upgrade.cattle.io/node"] == name.as_str();
    let ended = pods.iter().filter(of_job).any(|pod| pod["status"]["phase"] == "Succeeded");
    ensure!(!ended, "the job on {name} is done, and its node was not restarted");
    Ok(name)
}

/// Cuts the power of the node, lets the boot loader start a slot, and the boot be judged.
fn restart(cluster: &mut TestCluster, name: &str) -> Result<()> {
    cluster.start_again(name, &|_| Ok(()))?;
    judge(cluster.node(name)?)
}

/// Lets the boot of a node be judged, as its unit does.
fn judge(node: &NativeNode) -> Result<()> {
    node.run("setsid installer bless >>/var/log/units/bless.log 2>&1 </dev/null &").map(drop)
}

/// While the first server leaves: jobs of the other plans wait at the gate, and the other server has none.
fn others_wait(cluster: &TestCluster, first: &str, other: &str) -> Result<()> {
    let jobs = cluster.kubectl().list(&["jobs", NAMESPACE]);
    let mut nodes: Vec<_> =
        jobs.iter().filter_map(|job| job["metadata"]["labels"]["upgrade.cattle.io/node"].as_str()).collect();
    nodes.sort_unstable();
    ensure!(
        nodes == [first, WITNESS, WORKER],
        "{other} waits for {first}, by the plan's concurrency: {nodes:?}"
    );
    for name in [WITNESS, WORKER] {
        let selector = format!("--selector=upgrade.cattle.io/node={name}");
        Deadline::after(RUN).every(CLUSTER_INTERVAL).poll(&format!("{name} waiting at the gate"), || {
            let said = cluster.kubectl().call(&["logs", NAMESPACE, &selector, "--tail=-1"], "")?.said();
            let why = ["servers come first".to_owned(), format!("{first} is being updated")];
            Ok(why.iter().any(|why| said.contains(why)).then_some(()))
        })?;
        ensure!(!is_cordoned(cluster, name)?, "{name} is cordoned before its turn");
    }
    Ok(())
}

fn annotations(cluster: &TestCluster, name: &str) -> Result<Value> {
    Ok(cluster.kubectl().get(&["node", name])?["metadata"]["annotations"].clone())
}

/// The running slot in `installer update status`.
fn running_slot(cluster: &TestCluster, name: &str) -> Result<Value> {
    let told = cluster.node(name)?.call("installer --format json update status")?;
    let status: Value = serde_json::from_str(&told.stdout)
        .with_context(|| format!("{name} ended with {}: {}", told.code, told.said()))?;
    Ok(status["running"].clone())
}

/// After the rollback every node runs what it ran, takes pods, and the cluster says why.
fn stopped(cluster: &TestCluster, first: &str, other: &str) -> Result<()> {
    for name in [first, other, WITNESS, WORKER] {
        ensure!(running_slot(cluster, name)? == "a", "{name} does not run the release before");
        ensure!(!is_cordoned(cluster, name)?, "{name} is cordoned");
        let told = annotations(cluster, name)?;
        ensure!(told["nqrust.io/os-version"] == OLD, "{name}: {told}");
        let expected = if name == first { "rolled-back" } else { "idle" };
        let waits = name != first && told["nqrust.io/update-state"] == "staged";
        ensure!(waits || told["nqrust.io/update-state"] == expected, "{name}: {told}");
    }
    ensure!(cluster.disk(other)?.release(Slot::B).is_err(), "{other} was written");
    ensure!(holder(cluster)? == first, "the lock says who took the release back");
    let [_, _, server] = outcomes(cluster).remove("server").context("the plan of servers")?;
    ensure!(server.contains(first), "{server}");
    for name in [WITNESS, WORKER] {
        let selector = format!("--selector=upgrade.cattle.io/node={name}");
        let said = cluster.kubectl().call(&["logs", NAMESPACE, &selector, "--tail=-1"], "")?.said();
        let why = [format!("taken back on {first}"), format!("{first} took it back")];
        ensure!(why.iter().any(|why| said.contains(why)), "{name}: {said}");
    }
    Ok(())
}

/// In the end every node runs the release, which is good, and nothing of the rollout is left.
fn updated(cluster: &TestCluster) -> Result<()> {
    for node in cluster.nodes() {
        let name = &node.name;
        ensure!(running_slot(cluster, name)? == "b", "{name} does not run the release");
        let told = annotations(cluster, name)?;
        ensure!(
            told["nqrust.io/os-version"] == NEW && told["nqrust.io/update-state"] == "good",
            "{name}: {told}"
        );
        ensure!(!is_cordoned(cluster, name)?, "{name} is cordoned");
        let left = cluster.node(name)?.run("ls /run/nqrust/from-pod 2>/dev/null | wc -l")?;
        ensure!(left.trim() == "0", "{name} keeps the access of a pod");
    }
    ensure!(holder(cluster)?.is_null(), "the lock is free");
    ensure!(running(cluster, None) == 2, "the workload runs");
    Ok(())
}
