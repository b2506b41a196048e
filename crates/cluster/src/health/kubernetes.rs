//! Checks of the node's part in its cluster, of RKE2, K3s and kubeadm alike: [`gather`] asks, [`results`] judges.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::check::{API_SERVER, CERTIFICATES, CONTAINERD, CheckResult, ETCD, Finding, KUBELET, NODE};
use super::cri;
use crate::certificates::CertificateEnd;
use crate::configuration::{ClusterMember, ClusterPart, etcd_data, part_of};
use crate::kubernetes::node::Node;
use crate::stages::{cluster_node, get_text, ping, ready_as_kubelet, without_tokens};
use base::command::{Invocation, Runner};
use machine::paths::{KUBELET_CERTIFICATE, below};
use model::config::{Distribution, InstallConfig};

/// Within this time before its end a certificate is told. Those of a year that are renewed by themselves are so months before: by
/// the kubelet, and at each start of RKE2 and K3s.
const CERTIFICATE_TIME: SignedDuration = SignedDuration::from_hours(30 * 24);
const CRI_LIMIT: Duration = Duration::from_secs(5);
const KUBELET_URL: &str = "http://127.0.0.1:10248";
const API_URL: &str = "https://127.0.0.1:6443";
/// Where etcd tells its state without certificates, to this machine alone: kubeadm sets it (`listen-metrics-urls`), and so do RKE2
/// and K3s (k3s `pkg/etcd`).
const ETCD_URL: &str = "http://127.0.0.1:2381";

/// What the parts of Kubernetes on a node say.
#[derive(Clone, Debug)]
struct Facts {
    distribution: Distribution,
    containerd: Result<(), String>,
    kubelet: Result<(), String>,
    /// None on a node without one.
    api: Option<Result<(), String>>,
    etcd: Option<EtcdFact>,
    /// Whether the cluster answers at the address by which the node joined.
    cluster: Result<(), String>,
    /// None if the cluster does not know the node.
    node: Result<Option<Node>, String>,
    /// The kernel's id of this boot.
    boot: String,
}

/// What etcd of this node says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EtcdFact {
    Silent(String),
    /// It runs, and finds too few of the others.
    NoLeader(String),
    Unhealthy(String),
    Learner,
    /// Whether it is the only member.
    Voter {
        alone: bool,
    },
}

/// Every check of Kubernetes on the node of this document, and whether it is known to be the only server of its cluster.
pub(super) fn look(
    root: &Path,
    runner: &dyn Runner,
    config: &InstallConfig,
    name: Option<&str>,
) -> (Vec<CheckResult>, bool) {
    let Some((member, part)) = ClusterMember::of(config).zip(part_of(config)) else {
        return (none(&Finding::NotApplicable), false);
    };
    if is_absent(runner, member.unit) {
        return (without_kubernetes(root, &member), false);
    }
    let facts = gather(root, &member, part, name);
    let mut found = results(&facts);
    found.push(CERTIFICATES.found(certificates(root, member.distribution, Timestamp::now())));
    (found, facts.etcd == Some(EtcdFact::Voter { alone: true }))
}

/// Whether the OS image has no such unit.
fn is_absent(runner: &dyn Runner, unit: &str) -> bool {
    let show = Invocation::new("systemctl").args(["show", "--property=LoadState", "--value", unit]);
    runner.run(&show.limit(CRI_LIMIT)).is_ok_and(|state| state.trim_ascii() == b"not-found")
}

/// The checks where the OS image has no Kubernetes. It may be good all the same, and that the node has no cluster is told by its stages;
/// but a node that is in a cluster already has lost its part in that.
fn without_kubernetes(root: &Path, member: &ClusterMember) -> Vec<CheckResult> {
    let mut found = none(&Finding::NotApplicable);
    let accesses = [member.kubeconfig(), KUBELET_CERTIFICATE.to_owned()];
    if accesses.iter().any(|access| below(root, access).exists()) {
        let why = format!("{} is not in the OS image, and this node is in a cluster", member.unit);
        found.retain(|result| result.check.id != KUBELET.id);
        found.push(KUBELET.found(Finding::failing(why)));
    }
    found
}

/// The same finding for each check.
pub(super) fn none(finding: &Finding) -> Vec<CheckResult> {
    let checks = [&CONTAINERD, &KUBELET, &API_SERVER, &ETCD, &NODE, &CERTIFICATES];
    checks.map(|check| check.found(finding.clone())).into()
}

fn certificates(root: &Path, distribution: Distribution, now: Timestamp) -> Finding {
    match CertificateEnd::first(root, distribution) {
        None => Finding::cannot_say("the node has no certificates from its cluster yet"),
        Some(end) if end.is_within(CERTIFICATE_TIME, now) => Finding::failing(end.to_string()),
        Some(_) => Finding::Healthy,
    }
}

fn gather(root: &Path, member: &ClusterMember, part: ClusterPart, name: Option<&str>) -> Facts {
    let kubeconfig = member.kubeconfig();
    let controls = matches!(part, ClusterPart::First | ClusterPart::Server);
    // A node whose document does not say so may have been promoted.
    let keeps = member.server || below(root, &etcd_data(member.distribution)).join("member").exists();
    let unasked = || "it was not asked to the end".to_owned();
    thread::scope(|scope| {
        let containerd = scope.spawn(|| {
            cri::version(&below(root, member.distribution.containerd_socket()), CRI_LIMIT).map(drop)
        });
        let kubelet = scope.spawn(|| ping(KUBELET_URL, "/healthz"));
        let api = scope.spawn(|| {
            controls.then(|| match member.distribution {
                Distribution::Kubeadm => ping(API_URL, "/readyz"),
                Distribution::Rke2 | Distribution::K3s => ready_as_kubelet(root, &kubeconfig, API_URL),
            })
        });
        let etcd = scope.spawn(|| keeps.then(etcd));
        let cluster = scope.spawn(|| {
            let host = member.host.as_deref().unwrap_or("127.0.0.1");
            ping(&member.supervisor(host), member.health())
        });
        let node = match name {
            None => Err("the node has no name".to_owned()),
            Some(_) if !below(root, &kubeconfig).exists() => {
                Err("the node has no credentials from its cluster yet".to_owned())
            }
            Some(name) => cluster_node(root, &kubeconfig, name),
        };
        Facts {
            distribution: member.distribution,
            containerd: containerd.join().unwrap_or_else(|_| Err(unasked())),
            kubelet: kubelet.join().unwrap_or_else(|_| Err(unasked())),
            api: api.join().unwrap_or_else(|_| Some(Err(unasked()))),
            etcd: etcd.join().unwrap_or_else(|_| Some(EtcdFact::Silent(unasked()))),
            cluster: cluster.join().unwrap_or_else(|_| Err(unasked())),
            node,
            boot: fs::read_to_string(root.join("proc/sys/kernel/random/boot_id"))
                .unwrap_or_default()
                .trim()
                .to_owned(),
        }
    })
}

fn etcd() -> EtcdFact {
    let health = match get_text(&format!("{ETCD_URL}/health")) {
        Ok((_, text)) => text,
        Err(why) => return EtcdFact::Silent(why),
    };
    let metrics = get_text(&format!("{ETCD_URL}/metrics")).map(|(_, text)| text).unwrap_or_default();
    etcd_fact(&health, &metrics)
}

/// From etcd's own words about its health (etcd `etcdhttp.Health`) and its metrics.
fn etcd_fact(health: &str, metrics: &str) -> EtcdFact {
    let answer: serde_json::Value = serde_json::from_str(health).unwrap_or_default();
    let metric = |name: &str| {
        let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        lines.next().map(str::trim)
    };
    if answer["health"] != "true" {
        let reason =
            answer["reason"].as_str().filter(|reason| !reason.is_empty()).unwrap_or("it gives no reason");
        let text = format!("etcd is not healthy: {reason}");
        return match metric("etcd_server_has_leader") {
            Some("0") => EtcdFact::NoLeader("etcd finds too few of the cluster's servers".into()),
            _ => EtcdFact::Unhealthy(text),
        };
    }
    match metric("etcd_server_is_learner") {
        Some("1") => EtcdFact::Learner,
        Some("0") => {
            EtcdFact::Voter { alone: !metrics.lines().any(|line| line.starts_with("etcd_network_peer_")) }
        }
        _ => EtcdFact::Unhealthy("etcd does not tell whether it has a vote".into()),
    }
}

fn results(facts: &Facts) -> Vec<CheckResult> {
    let from_cluster = beyond_the_node(facts);
    // Where this part begins only once others answer, that it has not begun says nothing of this node.
    let begun = |result: &Result<(), String>, waits: bool| match (result, &from_cluster) {
        (Ok(()), _) => Finding::Healthy,
        (Err(why), Some(beyond)) if waits => Finding::cannot_say(format!("{why}; {beyond}")),
        (Err(why), _) => Finding::failing(why.clone()),
    };
    let no_quorum = matches!(facts.etcd, Some(EtcdFact::NoLeader(_)));
    let agent = facts.etcd.is_none();
    let waits = match facts.distribution {
        Distribution::K3s => true,
        // A server of RKE2 has a containerd and a kubelet before it has etcd; an agent asks its servers first, as with K3s.
        Distribution::Rke2 => agent,
        Distribution::Kubeadm => false,
    };
    let api = facts.api.as_ref().map_or(Finding::NotApplicable, |api| begun(api, no_quorum));
    vec![
        CONTAINERD.found(begun(&facts.containerd, waits)),
        KUBELET.found(begun(&facts.kubelet, waits)),
        API_SERVER.found(api),
        ETCD.found(facts.etcd.as_ref().map_or(Finding::NotApplicable, etcd_finding)),
        NODE.found(node_finding(facts)),
    ]
}

/// What is wrong outside of this node, if anything is.
fn beyond_the_node(facts: &Facts) -> Option<String> {
    match (&facts.etcd, &facts.cluster, &facts.node) {
        (Some(EtcdFact::NoLeader(why)), ..) => Some(why.clone()),
        (None, Err(why), Err(_)) => Some(why.clone()),
        _ => None,
    }
}

fn etcd_finding(etcd: &EtcdFact) -> Finding {
    match etcd {
        EtcdFact::Silent(why) | EtcdFact::Unhealthy(why) => Finding::failing(why.clone()),
        EtcdFact::NoLeader(why) => Finding::cannot_say(why.clone()),
        EtcdFact::Learner => {
            Finding::failing("the member of etcd on this node is a learner still: it has no vote")
        }
        EtcdFact::Voter { .. } => Finding::Healthy,
    }
}

fn node_finding(facts: &Facts) -> Finding {
    let node = match &facts.node {
        Err(why) => return Finding::cannot_say(why.clone()),
        Ok(None) => return Finding::failing("the cluster has no node of this name"),
        Ok(Some(node)) => node,
    };
    if node.status.node_info.boot_id != facts.boot {
        return Finding::failing("the kubelet has not reported to the cluster since this boot");
    }
    match node.ready() {
        Some(ready) if ready.holds() => Finding::Healthy,
        Some(ready) => Finding::failing(format!("the node is not ready: {}", without_tokens(&ready.message))),
        None => Finding::failing("the kubelet has not reported its state yet"),
    }
}

#[cfg(test)]
mod tests;
