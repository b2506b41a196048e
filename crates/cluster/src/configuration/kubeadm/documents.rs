//! The documents of kubeadm (`kubeadm.k8s.io/v1beta4`, which kubeadm reads from 1.31 on).

use serde_json::{Map, Value, json};

use super::super::cluster_node::{ClusterNode, ClusterPart};
use super::super::reserved::PODS;
use super::super::settings::{names, networks, static_address, taints};
use super::timing;
use machine::paths::KUBEADM;

/// The audit policy, which the API server reads in its pod.
pub(super) const AUDIT: &str = "audit-policy.yaml";
/// Changes to the manifests of kubeadm (kubeadm, "Customizing components with the kubeadm API", patches).
pub(super) const PATCHES: &str = "patches";
const VERSION: &str = "kubeadm.k8s.io/v1beta4";
/// The socket of Debian's containerd.
const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";
/// Where the API server writes its audit log, on the node and in its pod.
const LOGS: &str = "/var/log/kubernetes";
/// In bytes; the maximum that etcd recommends (etcd, "System limits").
const ETCD_QUOTA: u64 = 8 << 30;
/// Ten years, as for the authorities: an unattended cluster must not stop after one year.
const VALIDITY: &str = "87600h0m0s";

/// The files of documents, by the names that `installer kubeadm` knows.
pub(super) fn of(node: &ClusterNode<'_>) -> Vec<(&'static str, Vec<Value>)> {
    let mut documents = match node.part {
        ClusterPart::First => vec![("init", vec![init(node), cluster(node), kubelet(node), proxy()])],
        ClusterPart::Server => vec![("join", vec![join(node, true)])],
        ClusterPart::Agent => vec![("join", vec![join(node, false)])],
        // A witness joins as a node without a control plane; then etcd joins as on a server.
        ClusterPart::Witness => vec![("join", vec![join(node, false)]), ("etcd", vec![join(node, true)])],
    };
    documents.push(("upgrade", vec![upgrade(node)]));
    documents
}

/// For the step to another version, which `installer update kubernetes` adds.
fn upgrade(node: &ClusterNode<'_>) -> Value {
    let mut how = json!({ "imagePullPolicy": "IfNotPresent" });
    let errors = timing::ignored_errors(node);
    put_some(&mut how, "ignorePreflightErrors", (!errors.is_empty()).then(|| json!(errors)));
    // The manifests are made anew, with the same changes.
    put_some(&mut how, "patches", patches(node).filter(|_| node.controls()));
    let mut timeouts = timing::timeouts(node);
    let manifests = timeouts["controlPlaneComponentHealthCheck"].clone();
    put_some(&mut timeouts, "upgradeManifests", Some(manifests));
    json!({
        "apiVersion": VERSION,
        "kind": "UpgradeConfiguration",
        "apply": how,
        "node": how,
        "timeouts": timeouts,
    })
}

fn init(node: &ClusterNode<'_>) -> Value {
    let mut document = json!({
        "apiVersion": VERSION,
        "kind": "InitConfiguration",
        "nodeRegistration": registration(node),
        "timeouts": timing::timeouts(node),
    });
    put_some(&mut document, "localAPIEndpoint", endpoint(node));
    put_some(&mut document, "patches", patches(node));
    document
}

fn join(node: &ClusterNode<'_>, controls: bool) -> Value {
    let host = node.host.as_deref().unwrap_or_default();
    let mut document = json!({
        "apiVersion": VERSION,
        "kind": "JoinConfiguration",
        "discovery": { "bootstrapToken": { "apiServerEndpoint": format!("{host}:6443") } },
        "nodeRegistration": registration(node),
        "timeouts": timing::timeouts(node),
    });
    if controls {
        let mut control_plane = json!({});
        put_some(&mut control_plane, "localAPIEndpoint", endpoint(node));
        put_some(&mut document, "controlPlane", Some(control_plane));
        put_some(&mut document, "patches", patches(node));
    }
    document
}

fn put_some(document: &mut Value, key: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (document.as_object_mut(), value) {
        object.insert(key.to_owned(), value);
    }
}

/// Where etcd and the API server of the node are reached. Without it kubeadm takes the address of the default route.
fn endpoint(node: &ClusterNode<'_>) -> Option<Value> {
    static_address(node).map(|ip| json!({ "advertiseAddress": ip.to_string(), "bindPort": 6443 }))
}

/// The directory of patches has to exist if it is named.
fn patches(node: &ClusterNode<'_>) -> Option<Value> {
    let any = !timing::patches(node).is_empty();
    any.then(|| json!({ "directory": format!("{KUBEADM}/{PATCHES}") }))
}

/// An empty list keeps kubeadm from tainting control planes: every node may run pods, as with the hypervisor.
fn registration(node: &ClusterNode<'_>) -> Value {
    let taints: Vec<Value> = taints(node).into_iter().map(taint).collect();
    let mut registration = json!({
        "criSocket": CONTAINERD,
        "imagePullPolicy": "IfNotPresent",
        "taints": taints,
    });
    put_some(&mut registration, "name", node.name.map(|name| json!(name)));
    let errors = timing::ignored_errors(node);
    put_some(&mut registration, "ignorePreflightErrors", (!errors.is_empty()).then(|| json!(errors)));
    registration
}

/// `KEY=VALUE:EFFECT` or `KEY:EFFECT`.
fn taint(text: &str) -> Value {
    let (label, effect) = text.rsplit_once(':').unwrap_or((text, ""));
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    let mut taint = json!({ "key": key, "effect": effect });
    put_some(&mut taint, "value", (!value.is_empty()).then(|| json!(value)));
    taint
}

fn cluster(node: &ClusterNode<'_>) -> Value {
    // Every cluster has its name servers at the tenth address of its services; the rules of documents refuse another one.
    let (pods, services, _) = networks(node);
    let mut document = json!({
        "apiVersion": VERSION,
        "kind": "ClusterConfiguration",
        "networking": {
            "podSubnet": pods.to_string(),
            "serviceSubnet": services.to_string(),
            "dnsDomain": "cluster.local",
        },
        "encryptionAlgorithm": "ECDSA-P256",
        "certificateValidityPeriod": VALIDITY,
        "caCertificateValidityPeriod": VALIDITY,
        "apiServer": {
            "certSANs": server_names(node),
            "extraArgs": arguments(api_server(node)),
            "extraVolumes": [
                {
                    "name": "nqrust-audit-policy",
                    "hostPath": format!("{KUBEADM}/{AUDIT}"),
                    "mountPath": format!("{KUBEADM}/{AUDIT}"),
                    "readOnly": true,
                    "pathType": "File",
                },
                {
                    "name": "nqrust-logs",
                    "hostPath": LOGS,
                    "mountPath": LOGS,
                    "pathType": "DirectoryOrCreate",
                },
            ],
        },
        "controllerManager": { "extraArgs": arguments(timing::controller_manager(node)) },
        "scheduler": { "extraArgs": arguments(timing::leader(node)) },
        "etcd": { "local": { "dataDir": "/var/lib/etcd", "extraArgs": arguments(etcd(node)) } },
    });
    put_some(
        &mut document,
        "controlPlaneEndpoint",
        control_plane(node).map(|host| json!(format!("{host}:6443"))),
    );
    document
}

/// The address of the control plane: the virtual one, else the one of this node. Without either further servers cannot join.
fn control_plane(node: &ClusterNode<'_>) -> Option<String> {
    node.config.install.vip.or_else(|| static_address(node)).map(|address| address.to_string())
}

/// Names of the API server beside those that kubeadm gives it. `installer kubeadm` asks it on the node itself.
fn server_names(node: &ClusterNode<'_>) -> Vec<String> {
    let mut names = names(node);
    names.extend(["127.0.0.1", "localhost"].map(str::to_owned));
    names
}

type Arguments = Vec<(&'static str, String)>;

fn arguments(arguments: Arguments) -> Vec<Value> {
    arguments.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
}

fn api_server(node: &ClusterNode<'_>) -> Arguments {
    let mut arguments = vec![
        ("audit-policy-file", format!("{KUBEADM}/{AUDIT}")),
        ("audit-log-path", format!("{LOGS}/audit.log")),
        ("audit-log-maxage", "30".to_owned()),
        ("audit-log-maxbackup", "10".to_owned()),
        ("audit-log-maxsize", "100".to_owned()),
    ];
    arguments.extend(timing::api_server(node));
    arguments
}

fn etcd(node: &ClusterNode<'_>) -> Arguments {
    let mut arguments = vec![("quota-backend-bytes", ETCD_QUOTA.to_string())];
    arguments.extend(timing::etcd(node));
    arguments
}

/// What all kubelets of the cluster share. The images of a node come with its medium, and no registry has them again: the
/// kubelet must not remove any when the disk is full.
fn kubelet(node: &ClusterNode<'_>) -> Value {
    let mut document = Map::new();
    document.extend(timing::kubelet(node));
    for (key, value) in [
        ("apiVersion", json!("kubelet.config.k8s.io/v1beta1")),
        ("kind", json!("KubeletConfiguration")),
        ("cgroupDriver", json!("systemd")),
        ("maxPods", json!(PODS)),
        ("imageGCHighThresholdPercent", json!(100)),
        ("failSwapOn", json!(false)),
    ] {
        document.insert(key.to_owned(), value);
    }
    Value::Object(document)
}

fn proxy() -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
    })
}
