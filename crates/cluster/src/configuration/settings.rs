//! Settings of a node that every distribution gets, each in its own form.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::cluster_node::{ClusterNode, ClusterPart};
use super::reserved::{PODS, reserved};
use model::config::{Cidr, Distribution, Method, Mode, Role};

/// The taint that keeps everything but etcd's own helpers off a witness.
const WITNESS: &str = "node-role.kubernetes.io/etcd=true:NoExecute";

/// The taint of a node that joins and takes no work yet.
const CORDONED: &str = "nqrust.io/install-cordoned=true:NoSchedule";

/// The networks of pods and services, and the name server in the latter.
pub(super) fn networks(node: &ClusterNode<'_>) -> (Cidr, Cidr, Option<Ipv4Addr>) {
    let install = &node.config.install;
    let pods = install.pods();
    let services = install.services();
    (pods, services, install.cluster_dns.or_else(|| services.nth(10)))
}

/// Names of the API server beside its own.
pub(super) fn names(node: &ClusterNode<'_>) -> Vec<String> {
    let configured = node.config.install.vip.as_ref().map(Ipv4Addr::to_string);
    let sans = node.config.sans.iter().map(ToString::to_string);
    let mut names: Vec<String> = Vec::new();
    for name in configured.into_iter().chain(node.host.clone()).chain(sans) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The node's address in the management network, where the document gives one.
pub(super) fn static_address(node: &ClusterNode<'_>) -> Option<Ipv4Addr> {
    let management = node.config.install.management_interface.as_ref();
    management.filter(|management| management.method == Method::Static)?.ip
}

/// Taints with which the node registers, as `KEY=VALUE:EFFECT`.
pub(super) fn taints<'a>(node: &ClusterNode<'a>) -> Vec<&'a str> {
    let own = [(node.part == ClusterPart::Witness, WITNESS), (is_tainted_as_cordoned(node), CORDONED)];
    let own: Vec<&str> = own.into_iter().filter_map(|(is, taint)| is.then_some(taint)).collect();
    let configured = node.config.kubernetes.node_taints.iter().map(|taint| &**taint);
    let further: Vec<_> = configured.filter(|taint| !own.contains(taint)).collect();
    own.into_iter().chain(further).collect()
}

/// Whether a taint keeps work away from a node until somebody allows it. kubeadm's nodes are cordoned when they have joined, those of
/// the hypervisor by its controller, which acts on a label. Kubernetes removes the taint of a cordon from a node that is none.
fn is_tainted_as_cordoned(node: &ClusterNode<'_>) -> bool {
    is_cordoned(node) && node.distribution() != Distribution::Kubeadm && !node.hypervisor
}

/// Whether the node takes no work when it has joined.
fn is_cordoned(node: &ClusterNode<'_>) -> bool {
    node.config.install.cordoned && node.config.install.mode == Mode::Join
}

pub(super) fn labels(node: &ClusterNode<'_>) -> Vec<String> {
    let install = &node.config.install;
    let mut labels: BTreeMap<String, String> =
        node.config.os.labels.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
    labels.insert("harvesterhci.io/managed".to_owned(), "true".to_owned());
    if install.role != Role::Default {
        labels.insert(format!("node-role.harvesterhci.io/{}", install.role.name()), "true".to_owned());
    }
    if is_cordoned(node) {
        labels.insert("harvesterhci.io/install-cordoned".to_owned(), "true".to_owned());
    }
    labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// Computed arguments, each replaced by the document's of the same name, and then those.
pub(super) fn kubelet(node: &ClusterNode<'_>) -> Vec<String> {
    let configured: Vec<&str> = node.config.kubernetes.kubelet_args.iter().map(|line| &**line).collect();
    let name = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let pods = configured.iter().rev().find_map(|argument| argument.strip_prefix("max-pods=")?.parse().ok());
    let (system, kubelet) = reserved(node.size, pods.unwrap_or(PODS));
    let own = [
        format!("max-pods={PODS}"),
        format!("system-reserved={}", system.option()),
        format!("kube-reserved={}", kubelet.option()),
    ];
    let replaced = |argument: &String| configured.iter().any(|other| name(other) == name(argument));
    let own = own.into_iter().filter(|argument| !replaced(argument));
    own.chain(configured.iter().map(|argument| (*argument).to_owned())).collect()
}

/// Who did what to which object, without the content of any request, which could be a secret; and without the requests that
/// machines make all the time.
pub(super) fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/metrics", "/version"] },
            { "level": "None", "resources": [
                { "group": "", "resources": ["events"] },
                { "group": "events.k8s.io", "resources": ["events"] },
            ] },
            { "level": "None", "verbs": ["get", "list", "watch"], "userGroups": ["system:nodes"] },
            { "level": "None", "verbs": ["get", "update"], "resources": [
                { "group": "coordination.k8s.io", "resources": ["leases"] },
            ] },
            { "level": "Metadata" },
        ],
    })
}
