//! Intervals and limits of the control plane, and what they are on small or slow machines (`kubernetes.timing: relaxed`).
//!
//! An emulated machine, or one with a slow disk, answers probes too late and loses its leases while it is only busy. With fewer
//! probes and longer leases a failure is noticed later.

use serde_json::{Map, Value, json};

use super::super::cluster_node::{ClusterNode, ClusterPart};
use model::config::Timing;

fn is_relaxed(node: &ClusterNode<'_>) -> bool {
    node.config.kubernetes.timing.unwrap_or_default() == Timing::Relaxed
}

/// kubeadm's own limits (`Timeouts` of its documents). Its defaults suit machines that pull images quickly.
pub(super) fn timeouts(node: &ClusterNode<'_>) -> Value {
    let (long, short, call, discovery) = if is_relaxed(node) {
        ("20m0s", "10m0s", "10m0s", "2m0s")
    } else {
        ("10m0s", "4m0s", "2m0s", "1m0s")
    };
    json!({
        "controlPlaneComponentHealthCheck": long,
        "kubeletHealthCheck": short,
        // Also how long the first API server of a cluster may take until it answers.
        "kubernetesAPICall": call,
        "etcdAPICall": short,
        "tlsBootstrap": long,
        // A token that the cluster does not know takes as long to be told; the unit tries again.
        "discovery": discovery,
    })
}

/// Small machines have one processor or less memory than kubeadm wants.
pub(super) fn ignored_errors(node: &ClusterNode<'_>) -> Vec<&'static str> {
    if is_relaxed(node) { vec!["NumCPU", "Mem"] } else { Vec::new() }
}

type Arguments = Vec<(&'static str, String)>;

/// Arguments of a part that is only where the timing is relaxed.
fn relaxed(node: &ClusterNode<'_>, arguments: &[(&'static str, &str)]) -> Arguments {
    let kept = arguments.iter().filter(|_| is_relaxed(node));
    kept.map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// The leader election of the scheduler and of the controller manager.
pub(super) fn leader(node: &ClusterNode<'_>) -> Arguments {
    let arguments = [
        ("leader-elect-lease-duration", "60s"),
        ("leader-elect-renew-deadline", "40s"),
        ("leader-elect-retry-period", "10s"),
    ];
    relaxed(node, &arguments)
}

pub(super) fn controller_manager(node: &ClusterNode<'_>) -> Arguments {
    let mut arguments = leader(node);
    arguments.extend(relaxed(node, &[("node-monitor-period", "20s"), ("node-monitor-grace-period", "3m")]));
    arguments
}

pub(super) fn api_server(node: &ClusterNode<'_>) -> Arguments {
    relaxed(node, &[("lease-reuse-duration-seconds", "120"), ("request-timeout", "3m")])
}

/// etcd's heartbeat and election, in milliseconds (etcd, "Tuning").
pub(super) fn etcd(node: &ClusterNode<'_>) -> Arguments {
    relaxed(node, &[("heartbeat-interval", "1000"), ("election-timeout", "10000")])
}

/// Fields of the configuration of all kubelets.
pub(super) fn kubelet(node: &ClusterNode<'_>) -> Map<String, Value> {
    let fields = [
        ("nodeLeaseDurationSeconds", json!(120)),
        ("nodeStatusUpdateFrequency", json!("30s")),
        ("syncFrequency", json!("2m0s")),
        ("runtimeRequestTimeout", json!("10m0s")),
    ];
    fields.into_iter().filter(|_| is_relaxed(node)).map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Patches for the probes of the static pods of the node, by component.
pub(super) fn patches(node: &ClusterNode<'_>) -> Vec<(&'static str, Value)> {
    let components: &[&str] = match node.part {
        ClusterPart::Witness => &["etcd"],
        _ => &["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"],
    };
    components.iter().filter(|_| is_relaxed(node)).map(|name| (*name, probes(name))).collect()
}

fn probes(component: &str) -> Value {
    let probe = |period: u32, failures: u32| json!({ "periodSeconds": period, "timeoutSeconds": 30, "failureThreshold": failures });
    let mut container = json!({
        "name": component,
        "livenessProbe": probe(60, 8),
        "startupProbe": probe(20, 60),
    });
    // kubeadm gives the controller manager none, and a probe without a question is refused.
    if component != "kube-controller-manager" {
        container["readinessProbe"] = probe(30, 3);
    }
    json!({ "spec": { "containers": [container] } })
}
