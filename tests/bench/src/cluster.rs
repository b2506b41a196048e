//! A cluster of Kubernetes whose nodes are namespaces of this machine: how long its nodes take, and what they use. Only root can
//! make one.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use model::config::Role;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::deadline::Deadline;
use nqrust_tests::native_cluster::{
    ClusterNode, KubernetesRelease, NativeNode, Switch, TestCluster, is_ready,
};
use nqrust_tests::programs;
use nqrust_tests::registry::{Registry, RegistryAccess};
use serde_json::json;

use crate::figure::Figure;
use crate::images::mebibytes;

const FIRST: &str = "node-1";
/// Until a node that is switched on again is Ready.
const READY: Duration = Duration::from_secs(240);
/// Until somebody else answers for the virtual address and takes a write.
const TAKEN_OVER: Duration = Duration::from_secs(60);
/// How long nodes are left alone before their use of processors is measured, and how long it is measured.
const SETTLING: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(60);
/// The registry that Kubernetes names for its images, and the port of the one that takes its place.
const UPSTREAM_REGISTRY: &str = "registry.k8s.io";
const REGISTRY_PORT: u16 = 5000;
/// To unpack an image, and until the registry answers.
const UNPACK_LIMIT: Duration = Duration::from_secs(60);
/// The programs of a node that any Kubernetes has.
const COMMON_PROGRAMS: [&str; 2] = ["kubelet", "containerd"];
/// The seconds that the documentation says for the virtual address to move.
const DOCUMENTED_MOVE: f64 = 4.0;

fn nodes() -> Vec<ClusterNode> {
    vec![
        ClusterNode::new(FIRST, Role::Management, 11),
        ClusterNode::new("node-2", Role::Management, 12),
        ClusterNode::new("node-3", Role::Witness, 13),
        ClusterNode::new("node-4", Role::Worker, 21),
    ]
}

/// Measures a management node that is alone, then all nodes, then the loss of one.
pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let mut cluster = TestCluster::lay(&artifacts.disk("cluster"), nodes(), KubernetesRelease::built()?)?;
    let measured = parts(&mut cluster);
    if measured.is_err() {
        cluster.keep_logs(&artifacts.path("cluster-logs"))?;
    }
    let (first, mut figures) = measured?;
    drop(cluster);
    let alone = vec![ClusterNode::new(FIRST, Role::Management, 11)];
    let mut pulling =
        TestCluster::lay(&artifacts.disk("pulling-cluster"), alone, KubernetesRelease::built()?)?;
    let measured = first_start_that_pulls(&mut pulling, artifacts);
    if measured.is_err() {
        pulling.keep_logs(&artifacts.path("pulling-logs"))?;
    }
    let baseline = ("images pulled from a registry beside it", measured?);
    figures.push(Figure::new("first start to Ready, images preloaded", first, "s", baseline));
    Ok(figures)
}

/// Seconds from the start of a new node's units, with an empty store, until it is Ready. Its document names a mirror for the
/// registry of Kubernetes: one in the network of the nodes.
fn first_start_that_pulls(cluster: &mut TestCluster, artifacts: &Artifacts) -> Result<f64> {
    let mut registry = Registry::start(&artifacts.disk("cluster-registry"), RegistryAccess::default())?;
    for (name, archive) in KubernetesRelease::built()?.archives() {
        let plain = artifacts.disk("image.tar");
        let mut unpack = Command::new("zstd");
        unpack.args(["--decompress", "--quiet", "--force", "-o"]).arg(&plain).arg(archive);
        programs::run(&mut unpack, UNPACK_LIMIT)?.success("zstd")?;
        let path =
            name.strip_prefix(UPSTREAM_REGISTRY).with_context(|| format!("{name} is of another registry"))?;
        let to = path.trim_start_matches('/');
        registry.push(
            &format!("docker-archive:{}", plain.display()),
            to,
            &["--dest-compress-format=gzip"],
        )?;
    }
    let address = format!("{}:{REGISTRY_PORT}", Switch::ADMINISTRATOR);
    registry.move_to(cluster.switch.command("docker-registry"), &address)?;
    let asked = format!("http://{address}/v2/");
    Deadline::after(UNPACK_LIMIT).poll("the registry in the network of the nodes", || {
        let mut ask = cluster.switch.command("curl");
        ask.args(["--silent", "--fail", &asked]);
        Ok((programs::run(&mut ask, UNPACK_LIMIT)?.code == 0).then_some(()))
    })?;
    let mirrors = json!({ "Mirrors": { UPSTREAM_REGISTRY: { "Endpoints": [format!("http://{address}")] } } });
    let setting = json!({ "containerd-registry": mirrors.to_string() });
    let mut document: serde_yaml::Value = serde_yaml::from_str(&cluster.document(FIRST)?)?;
    document["system_settings"] = serde_yaml::to_value(setting)?;
    cluster.place(FIRST)?.install(&serde_yaml::to_string(&document)?)?;
    cluster.switch_on(FIRST)?;
    let begun = Instant::now();
    cluster.node(FIRST)?.start_units()?;
    cluster.await_joined(FIRST)?;
    let access = cluster.node(FIRST)?.run("cat /etc/kubernetes/admin.conf")?;
    cluster.kubectl().write_access(&access)?;
    cluster.await_ready(&[FIRST])?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Seconds of the first start of a node with its images, and the figures of the cluster.
fn parts(cluster: &mut TestCluster) -> Result<(f64, Vec<Figure>)> {
    let first = first_start(cluster)?;
    let again = power_cycle(cluster)?;
    let baseline = ("its first start, images preloaded", first);
    let mut figures = vec![Figure::new("a management node, power on to Ready", again, "s", baseline)];
    cluster.join_all(&["node-4", "node-2", "node-3"], &mut |_| Ok(()))?;
    figures.extend(idle(cluster)?);
    let moved = lose_holder(cluster)?;
    let baseline = ("the documentation", DOCUMENTED_MOVE);
    figures.push(Figure::new("power cut of the address's holder to a write", moved, "s", baseline));
    Ok((first, figures))
}

/// Seconds from the start of a new node's units, with its images in its store, until it is Ready.
fn first_start(cluster: &mut TestCluster) -> Result<f64> {
    let mut seeded = None;
    cluster.create(&mut |_| {
        seeded.get_or_insert_with(Instant::now);
        Ok(())
    })?;
    Ok(seeded.context("a cluster's making has parts")?.elapsed().as_secs_f64())
}

/// Seconds from power on until the node has said that it is Ready; what the API still says from before does not count.
fn power_cycle(cluster: &mut TestCluster) -> Result<f64> {
    cluster.cut_off(FIRST)?;
    let (switched_on, begun) = (Timestamp::now(), Instant::now());
    cluster.switch_on(FIRST)?;
    cluster.node(FIRST)?.start_units()?;
    let kubectl = cluster.kubectl();
    Deadline::after(READY).poll("the node being Ready again", || {
        let node = kubectl.get(&["node", FIRST]).unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = conditions.iter().find(|condition| condition["type"] == "Ready");
        let said = said.and_then(|ready| ready["lastHeartbeatTime"].as_str()?.parse::<Timestamp>().ok());
        Ok((is_ready(&node) && said.is_some_and(|said| said > switched_on)).then_some(()))
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Memory and use of processors of one node of each role that do nothing, beside those of the programs that any Kubernetes has.
fn idle(cluster: &TestCluster) -> Result<Vec<Figure>> {
    thread::sleep(SETTLING);
    let roles = [(FIRST, "management"), ("node-3", "witness"), ("node-4", "worker")];
    let ticks =
        || roles.iter().map(|(name, _)| processor_ticks(cluster.node(name)?)).collect::<Result<Vec<_>>>();
    let (before, begun) = (ticks()?, Instant::now());
    thread::sleep(IDLE);
    let (after, seconds) = (ticks()?, begun.elapsed().as_secs_f64());
    let mut figures = Vec::new();
    for (number, (name, role)) in roles.into_iter().enumerate() {
        let [all, common] = sums(&cluster.node(name)?.memory()?).map(|kibibytes| mebibytes(kibibytes << 10));
        let baseline = ("its kubelet and containerd", common);
        figures.push(Figure::new(&format!("memory of an idle {role} node"), all, "MiB", baseline));
        let used = after[number].iter().map(|(program, ticks)| {
            let earlier = before[number].get(program).copied().unwrap_or_default();
            (program.clone(), ticks.saturating_sub(earlier))
        });
        let [all, common] = sums(&used.collect()).map(|ticks| percent(ticks, seconds));
        let baseline = ("its kubelet and containerd", common);
        figures.push(Figure::new(&format!("processor of an idle {role} node"), all, "%", baseline));
    }
    Ok(figures)
}

/// The sum of all programs, and of those that any Kubernetes has.
fn sums(programs: &BTreeMap<String, u64>) -> [u64; 2] {
    let common = COMMON_PROGRAMS.iter().filter_map(|name| programs.get(*name)).sum();
    [programs.values().sum(), common]
}

/// Of one processor. The kernel tells programs a hundred ticks a second, whatever its own are (proc(5), `USER_HZ`).
#[allow(clippy::cast_precision_loss)]
fn percent(ticks: u64, seconds: f64) -> f64 {
    ticks as f64 / seconds
}

/// The ticks that each program of the node has used so far, with those of its children that have ended.
fn processor_ticks(node: &NativeNode) -> Result<BTreeMap<String, u64>> {
    let mut programs = BTreeMap::new();
    // A process can end while it is looked at.
    for line in node.run("cat /proc/[0-9]*/stat 2>/dev/null || true")?.lines() {
        if let Some((name, ticks)) = program_ticks(line) {
            *programs.entry(name.to_owned()).or_default() += ticks;
        }
    }
    Ok(programs)
}

/// Name and ticks of a line of proc_pid_stat(5): fields 2, and 14 to 17.
fn program_ticks(line: &str) -> Option<(&str, u64)> {
    let (head, rest) = line.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let ticks: Vec<u64> = rest.split_whitespace().skip(11).take(4).map_while(|t| t.parse().ok()).collect();
    (ticks.len() == 4).then(|| (name, ticks.iter().sum()))
}

/// Seconds from the power cut of the node that answers for the virtual address until a write succeeds.
fn lose_holder(cluster: &mut TestCluster) -> Result<f64> {
    let lost = cluster.holder()?;
    cluster.write("before")?;
    let begun = Instant::now();
    cluster.cut_off(&lost)?;
    let write = || Ok(cluster.write("without").ok());
    Deadline::after(TAKEN_OVER).poll("a write without the lost node", write)?;
    Ok(begun.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_ticks_are_its_own_and_those_of_its_children() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 10 20 30 40 100 20 3 4 20 0 1 0 55 1000 200 1";
        assert_eq!(program_ticks(stat), Some(("a (b) c", 127)));
        assert_eq!(program_ticks("7 (a) S 1 7"), None);
        assert_eq!(program_ticks(""), None);
    }
}
