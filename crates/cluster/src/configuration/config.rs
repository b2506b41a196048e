//! The configuration of RKE2 and K3s: `config.yaml.d` and the audit policy.

use serde_json::{Map, Value, json};

use super::cluster_node::{ClusterNode, ClusterPart, supervisor, text};
use super::settings::{audit_policy, kubelet, labels, names, networks, static_address, taints};
use machine::node_files::NodeFile;
use model::config::{Distribution, Secret};

/// The file of the audit policy; not in `config.yaml.d`, where it would be read as configuration.
const AUDIT: &str = "audit-policy.yaml";

pub(super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    let part = |name: &str, keys: Map<String, Value>| {
        NodeFile::new(&node.etc(&format!("config.yaml.d/{name}.yaml")), 0o600, text(&Value::Object(keys)))
    };
    let mut files =
        vec![part("90-nqrust-cluster", cluster(node)), part("91-nqrust-node", own_settings(node))];
    if node.controls() {
        files.push(NodeFile::new(&node.etc(AUDIT), 0o600, text(&audit_policy())));
    }
    files
}

fn cluster(node: &ClusterNode<'_>) -> Map<String, Value> {
    let config = node.config;
    let mut keys = Map::new();
    let mut put = |key: &str, value: Value| keys.insert(key.to_owned(), value);
    let (token, agent_token) = (config.token.as_ref(), config.kubernetes.agent_token.as_ref());
    let secret = |secret: &Secret| Value::from(secret.expose());
    if let Some(host) = &node.host {
        put("server", json!(supervisor(node.distribution(), host)));
    }
    if node.part == ClusterPart::Agent {
        if let Some(token) = agent_token.or(token) {
            put("token", secret(token));
        }
        return keys;
    }
    if let Some(token) = token {
        put("token", secret(token));
    }
    if let Some(token) = agent_token {
        put("agent-token", secret(token));
    }
    let (pods, services, dns) = networks(node);
    put("cluster-cidr", json!(pods.to_string()));
    put("service-cidr", json!(services.to_string()));
    if let Some(dns) = dns {
        put("cluster-dns", json!(dns.to_string()));
    }
    put("tls-san", json!(names(node)));
    put("write-kubeconfig-mode", json!("0600"));
    put("etcd-expose-metrics", json!(true));
    if node.part == ClusterPart::Witness {
        for component in ["disable-apiserver", "disable-controller-manager", "disable-scheduler"] {
            put(component, json!(true));
        }
    }
    match node.distribution() {
        Distribution::Rke2 => rke2(node, &mut put),
        Distribution::K3s => k3s(node, &mut put),
        Distribution::Kubeadm => {}
    }
    keys
}

fn rke2(node: &ClusterNode<'_>, put: &mut dyn FnMut(&str, Value) -> Option<Value>) {
    put("cni", json!(["multus", "canal"]));
    if node.hypervisor {
        // Its chart has a snapshot controller of its own. Without either no snapshot of a volume becomes ready.
        let disabled =
            ["rke2-snapshot-controller", "rke2-snapshot-controller-crd", "rke2-snapshot-validation-webhook"];
        put("disable", json!(disabled));
    }
    if node.controls() {
        put("audit-policy-file", json!(format!("/{}", node.etc(AUDIT))));
    }
}

fn k3s(node: &ClusterNode<'_>, put: &mut dyn FnMut(&str, Value) -> Option<Value>) {
    if node.part == ClusterPart::First {
        // Without this K3s keeps its state in SQLite, which no second server can join.
        put("cluster-init", json!(true));
    }
    // The hypervisor has its own storage and its own load balancer.
    put("disable", json!(["local-storage", "servicelb"]));
    if node.controls() {
        let log = node.state("server/logs/audit.log");
        let arguments = [
            format!("audit-policy-file=/{}", node.etc(AUDIT)),
            format!("audit-log-path=/{log}"),
            "audit-log-maxage=30".to_owned(),
            "audit-log-maxbackup=10".to_owned(),
            "audit-log-maxsize=100".to_owned(),
        ];
        put("kube-apiserver-arg", json!(arguments));
    }
}

fn own_settings(node: &ClusterNode<'_>) -> Map<String, Value> {
    let mut keys = Map::new();
    let mut put = |key: &str, value: Value| keys.insert(key.to_owned(), value);
    if let Some(name) = node.name {
        put("node-name", json!(name));
    }
    if let Some(ip) = static_address(node) {
        put("node-ip", json!(ip.to_string()));
    }
    put("node-label", json!(labels(node)));
    let taints = taints(node);
    if !taints.is_empty() {
        put("node-taint", json!(taints));
    }
    put("kubelet-arg", json!(kubelet(node)));
    // Virtual machines that do not run as root open block devices.
    put("nonroot-devices", json!(true));
    keys
}
