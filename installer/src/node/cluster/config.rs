//! The configuration of RKE2 and K3s: `config.yaml.d`, the audit policy and the registries.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::cluster_node::{ClusterNode, ClusterPart, supervisor, text};
use super::reserved::{PODS, reserved};
use crate::node::files::NodeFile;
use model::config::registries::{self, Registries};
use model::config::{Cidr, Distribution, Method, Mode, Role, Secret};

/// The file of the audit policy; not in `config.yaml.d`, where it would be read as configuration.
const AUDIT: &str = "audit-policy.yaml";
/// The taint that keeps everything but etcd's own helpers off a witness.
const WITNESS: &str = "node-role.kubernetes.io/etcd=true:NoExecute";

pub(super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    let part = |name: &str, keys: Map<String, Value>| {
        NodeFile::new(&node.etc(&format!("config.yaml.d/{name}.yaml")), 0o600, text(&Value::Object(keys)))
    };
    let mut files =
        vec![part("90-nqrust-cluster", cluster(node)), part("91-nqrust-node", own_settings(node))];
    if node.controls() {
        files.push(NodeFile::new(&node.etc(AUDIT), 0o600, text(&audit_policy())));
    }
    let setting = node.config.system_settings.get(registries::SETTING);
    // The rules of the document have refused what does not parse.
    let registries = setting.and_then(|value| Registries::parse(value.expose())).unwrap_or_default();
    if !registries.is_empty() {
        let value = base::encode::json(&registries);
        files.push(NodeFile::new(&node.etc("registries.yaml"), 0o600, text(&value)));
    }
    files
}

/// The settings that are common to the cluster.
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
    }
    keys
}

fn rke2(node: &ClusterNode<'_>, put: &mut dyn FnMut(&str, Value) -> Option<Value>) {
    put("cni", json!(["multus", "canal"]));
    // The storage has its own snapshot controller.
    let disabled =
        ["rke2-snapshot-controller", "rke2-snapshot-controller-crd", "rke2-snapshot-validation-webhook"];
    put("disable", json!(disabled));
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

/// The networks of pods and services, and the name server in the latter.
fn networks(node: &ClusterNode<'_>) -> (Cidr, Cidr, Option<Ipv4Addr>) {
    let install = &node.config.install;
    let pods = install.cluster_pod_cidr.unwrap_or(Cidr::containing(Ipv4Addr::new(10, 52, 0, 0), 16));
    let services = install.cluster_service_cidr.unwrap_or(Cidr::containing(Ipv4Addr::new(10, 53, 0, 0), 16));
    (pods, services, install.cluster_dns.or_else(|| services.nth(10)))
}

/// Names of the API server beside its own.
fn names(node: &ClusterNode<'_>) -> Vec<String> {
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

fn own_settings(node: &ClusterNode<'_>) -> Map<String, Value> {
    let config = node.config;
    let mut keys = Map::new();
    let mut put = |key: &str, value: Value| keys.insert(key.to_owned(), value);
    if let Some(name) = node.name {
        put("node-name", json!(name));
    }
    let management = config.install.management_interface.as_ref();
    if let Some(ip) = management.filter(|m| m.method == Method::Static).and_then(|m| m.ip) {
        put("node-ip", json!(ip.to_string()));
    }
    put("node-label", json!(labels(node)));
    let witness = (node.part == ClusterPart::Witness).then_some(WITNESS);
    let configured = config.kubernetes.node_taints.iter().map(|taint| &**taint);
    let taints: Vec<&str> =
        witness.into_iter().chain(configured.filter(|taint| Some(*taint) != witness)).collect();
    if !taints.is_empty() {
        put("node-taint", json!(taints));
    }
    put("kubelet-arg", json!(kubelet(node)));
    // Virtual machines that do not run as root open block devices.
    put("nonroot-devices", json!(true));
    keys
}

fn labels(node: &ClusterNode<'_>) -> Vec<String> {
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
fn kubelet(node: &ClusterNode<'_>) -> Vec<String> {
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
fn audit_policy() -> Value {
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
