//! Objects that the first node gives its cluster: what nodes may read, and the manifests of the document.

use serde_json::{Value, json};

use super::super::cluster_node::{ClusterNode, text};
use super::super::vip::CLUSTER;
use machine::node_files::NodeFile;

/// The group of nodes that join with the token of agents. kubeadm's own group may read the keys of the cluster's authorities,
/// which are encrypted; this one may not.
pub(crate) const AGENTS: &str = "system:bootstrappers:nqrust:agents";

const RBAC: &str = "rbac.authorization.k8s.io/v1";

pub(in super::super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    let mut files = vec![
        node.manifest("nqrust-cluster", text(&cluster(node))),
        node.manifest("nqrust-nodes", list(&nodes())),
        node.manifest("nqrust-joining", list(&joining())),
        node.manifest("nqrust-agents", list(&agents())),
    ];
    let manifests = node.config.kubernetes.manifests.iter();
    files.extend(manifests.map(|own| node.manifest(&format!("manifest-{}", own.name), &*own.content)));
    files
}

/// Facts that later nodes cannot read from their documents.
fn cluster(node: &ClusterNode<'_>) -> Value {
    let vip = node.config.install.vip.map(|vip| vip.to_string());
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": CLUSTER, "namespace": "kube-system" },
        "data": { "vip": vip.unwrap_or_default() },
    })
}

fn list(items: &[Value]) -> String {
    text(&json!({ "apiVersion": "v1", "kind": "List", "items": items }))
}

/// Nodes see each other: a kubelet may read its own node only. Routes to pods need the addresses of all, and the step to another
/// version of Kubernetes needs their versions.
fn nodes() -> [Value; 2] {
    let name = "nqrust:nodes";
    let rule = json!({ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] });
    [
        json!({ "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": name }, "rules": [rule] }),
        cluster_binding(name, name, "system:nodes"),
    ]
}

/// Who joins may see the nodes, as the supervisor of RKE2 and K3s has it: so a second witness and an address that is taken are
/// refused before a disk is touched. The node that each token makes sees them anyway.
fn joining() -> [Value; 2] {
    let name = "nqrust:joining";
    let rule = json!({ "apiGroups": [""], "resources": ["nodes"], "verbs": ["list"] });
    [
        json!({ "apiVersion": RBAC, "kind": "ClusterRole", "metadata": { "name": name }, "rules": [rule] }),
        cluster_binding(name, name, "system:bootstrappers"),
    ]
}

/// What kubeadm's own group of bootstrap tokens may do, but for the keys of authorities (`kubeadm:kubeadm-certs`).
fn agents() -> Vec<Value> {
    let cluster = [
        ("nqrust:agents-bootstrap", "system:node-bootstrapper"),
        ("nqrust:agents-autoapprove", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
        ("nqrust:agents-get-nodes", "kubeadm:get-nodes"),
    ];
    let inside = [
        ("nqrust:agents-kubeadm-config", "kubeadm:nodes-kubeadm-config"),
        ("nqrust:agents-kubelet-config", "kubeadm:kubelet-config"),
        ("nqrust:agents-kube-proxy", "kube-proxy"),
    ];
    let cluster = cluster.into_iter().map(|(name, role)| cluster_binding(name, role, AGENTS));
    cluster.chain(inside.into_iter().map(|(name, role)| binding(name, role, AGENTS))).collect()
}

fn cluster_binding(name: &str, role: &str, group: &str) -> Value {
    json!({
        "apiVersion": RBAC,
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": role_of("ClusterRole", role),
        "subjects": [subject(group)],
    })
}

fn binding(name: &str, role: &str, group: &str) -> Value {
    json!({
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": { "name": name, "namespace": "kube-system" },
        "roleRef": role_of("Role", role),
        "subjects": [subject(group)],
    })
}

fn role_of(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name })
}

fn subject(group: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group })
}
