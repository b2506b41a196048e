//! Checks of the node's part in its cluster, of RKE2, K3s and kubeadm alike.

use std::path::Path;
use std::thread;

use jiff::{SignedDuration, Timestamp};

use super::check::{API_SERVER, CERTIFICATES, CONTAINERD, CheckResult, ETCD, Finding, KUBELET, NODE};
use crate::certificates::CertificateEnd;
use crate::configuration::{ClusterMember, part_of};
use crate::observation::{ClusterView, Components, EtcdState, UnitState};
use crate::stages::without_tokens;
use base::command::Runner;
use machine::paths::{KUBELET_CERTIFICATE, below};
use model::config::{Distribution, InstallConfig};

/// Within this time before its end a certificate is told. Those of a year that are renewed by themselves are so months before: by
/// the kubelet, and at each start of RKE2 and K3s.
const CERTIFICATE_TIME: SignedDuration = SignedDuration::from_hours(30 * 24);
const NO_LEADER: &str = "etcd finds too few of the cluster's servers";

struct KubernetesFacts {
    distribution: Distribution,
    components: Components,
    cluster: ClusterView,
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
    if UnitState::read(runner, member.unit).is_some_and(|unit| unit.load == "not-found") {
        return (without_kubernetes(root, &member), false);
    }
    let facts = thread::scope(|scope| {
        let cluster = scope.spawn(|| ClusterView::observe(root, &member, name));
        let components = Components::observe(root, &member, part);
        let cluster = cluster.join().ok()?;
        Some(KubernetesFacts { distribution: member.distribution, components, cluster })
    });
    let Some(facts) = facts else { return (Vec::new(), false) };
    let mut found = results(&facts);
    found.push(CERTIFICATES.found(certificates(root, member.distribution, Timestamp::now())));
    (found, facts.components.etcd == Some(EtcdState::Voter { alone: true }))
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

fn results(facts: &KubernetesFacts) -> Vec<CheckResult> {
    let Components { containerd, kubelet, api, etcd, .. } = &facts.components;
    let from_cluster = beyond_the_node(facts);
    // Where this part begins only once others answer, that it has not begun says nothing of this node.
    let begun = |result: &Result<(), String>, waits: bool| match (result, &from_cluster) {
        (Ok(()), _) => Finding::Healthy,
        (Err(why), Some(beyond)) if waits => Finding::cannot_say(format!("{why}; {beyond}")),
        (Err(why), _) => Finding::failing(why.clone()),
    };
    let no_quorum = *etcd == Some(EtcdState::NoLeader);
    let agent = etcd.is_none();
    let waits = match facts.distribution {
        Distribution::K3s => true,
        // A server of RKE2 has a containerd and a kubelet before it has etcd; an agent asks its servers first, as with K3s.
        Distribution::Rke2 => agent,
        Distribution::Kubeadm => false,
    };
    let api = api.as_ref().map_or(Finding::NotApplicable, |api| begun(api, no_quorum));
    vec![
        CONTAINERD.found(begun(containerd, waits)),
        KUBELET.found(begun(kubelet, waits)),
        API_SERVER.found(api),
        ETCD.found(etcd.as_ref().map_or(Finding::NotApplicable, etcd_finding)),
        NODE.found(node_finding(facts)),
    ]
}

/// A fault outside of this node.
fn beyond_the_node(facts: &KubernetesFacts) -> Option<String> {
    match (&facts.components.etcd, &facts.cluster.server, &facts.cluster.node) {
        (Some(EtcdState::NoLeader), ..) => Some(NO_LEADER.to_owned()),
        (None, Err(why), Err(_)) => Some(why.clone()),
        _ => None,
    }
}

fn etcd_finding(etcd: &EtcdState) -> Finding {
    match etcd {
        EtcdState::Silent(why) | EtcdState::Unhealthy(why) => Finding::failing(why.clone()),
        EtcdState::NoLeader => Finding::cannot_say(NO_LEADER),
        EtcdState::Learner => Finding::failing("the etcd of this node is still a learner: it has no vote"),
        EtcdState::Voter { .. } => Finding::Healthy,
    }
}

fn node_finding(facts: &KubernetesFacts) -> Finding {
    let node = match &facts.cluster.node {
        Err(why) => return Finding::cannot_say(why.clone()),
        Ok(None) => return Finding::failing("the cluster has no node of this name"),
        Ok(Some(node)) => node,
    };
    if node.status.node_info.boot_id != facts.components.boot {
        return Finding::failing("the kubelet has not reported to the cluster since this boot");
    }
    match node.unready_reason() {
        None => Finding::Healthy,
        Some(why) => Finding::failing(format!("the node is not ready: {}", without_tokens(why))),
    }
}

#[cfg(test)]
mod tests;
