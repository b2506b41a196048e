//! What every distribution is told about a node, each in its own form.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::cluster_node::{ClusterNode, ClusterPart};
use super::reserved::{PODS, reserved};
use model::config::{Cidr, Method, Mode, Role};

/// The taint that keeps everything but etcd's own helpers off a witness.
const WITNESS: &str = "node-role.kubernetes.io/etcd=true:NoExecute";

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
    let witness = (node.part == ClusterPart::Witness).then_some(WITNESS);
    let configured = node.config.kubernetes.node_taints.iter().map(|taint| &**taint);
    witness.into_iter().chain(configured.filter(|taint| Some(*taint) != witness)).collect()
}

pub(super) fn labels(node: &ClusterNode<'_>) -> Vec<String> {
    let install = &node.config.install;
    let mut labels: BTreeMap<String, String> =
        node.config.os.labels.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
    labels.insert("harvesterhci.io/managed".to_owned(), "true".to_owned());
    if install.role != Role::Default {
        labels.insert(format!("node-role.harvesterhci.io/{}", install.role.name()), "true".to_owned());
    }
    if install.cordoned && install.mode == Mode::Join {
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
