//! kube-vip as a static pod on every control plane node of RKE2 and K3s.
//!
//! One of these pods at a time, elected through the API, answers for the address in the management network (ARP). A fixed address
//! is kube-vip's own; an address from DHCP belongs to a service of the cluster, because kube-vip asks a DHCP server, with a
//! chosen hardware address, for services only.

use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::super::cluster_node::{ClusterNode, ClusterPart, text};
use machine::network::management_device;
use machine::node_files::NodeFile;
use model::config::VipMode;
use model::os_image::VIP_IMAGE;

/// Services of this class are for these pods; the hypervisor's own kube-vip ignores them, and these pods ignore all others.
const CLASS: &str = "nqrust.io/cluster-vip";
/// The service that an address from DHCP belongs to, and its file.
const SERVICE: &str = "nqrust-vip";
/// The kubeconfig inside the pod. At `/etc/kubernetes/admin.conf` kube-vip ignores the server that the file names and asks
/// `kubernetes:6443` (`pkg/manager/manager.go` of 1.2.3), a name that this pod does not have.
const KUBECONFIG: &str = "/etc/kube-vip/kubeconfig";
/// The lease of the pods' leader election. It is the same for both kinds of address, so that two nodes never answer at the same
/// time, even if one of them does not know that the address is from DHCP.
const LEASE: &str = "nqrust-vip";

enum Vip<'a> {
    /// An address, or a name for one.
    Static(String),
    /// From a DHCP server: the address to request, and the hardware address of the request.
    Dhcp { address: Option<String>, mac: Option<&'a str> },
}

/// The address that the control plane has on any node. The document of a joining node need not repeat it: it is the address of
/// the cluster.
fn vip_of<'a>(node: &'a ClusterNode<'_>) -> Option<Vip<'a>> {
    let install = &node.config.install;
    let configured = install.vip.as_ref().map(Ipv4Addr::to_string);
    if install.vip_mode == Some(VipMode::Dhcp) {
        return Some(Vip::Dhcp { address: configured, mac: install.vip_hw_addr.as_deref() });
    }
    configured.or_else(|| node.host.clone()).map(Vip::Static)
}

pub(super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    let Some(vip) = vip_of(node) else { return Vec::new() };
    let manifest = node.state("agent/pod-manifests/nqrust-vip.yaml");
    let mut files = vec![NodeFile::new(&manifest, 0o600, text(&pod(node, &vip)))];
    if let (Vip::Dhcp { address, mac }, ClusterPart::First) = (&vip, node.part) {
        let documents = [service(address.as_deref(), *mac), endpoints()].map(|object| text(&object));
        files.push(node.manifest(SERVICE, documents.join("---\n")));
    }
    files
}

fn pod(node: &ClusterNode<'_>, vip: &Vip<'_>) -> Value {
    let distribution = node.distribution().name();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "nqrust-vip", "namespace": "kube-system" },
        "spec": {
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "containers": [{
                "name": "kube-vip",
                "image": VIP_IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "args": ["manager"],
                "env": environment(node, vip),
                "securityContext": { "capabilities": { "add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"] } },
                "volumeMounts": [{ "name": "kubeconfig", "mountPath": KUBECONFIG, "readOnly": true }],
            }],
            "volumes": [{
                "name": "kubeconfig",
                "hostPath": { "path": format!("/etc/rancher/{distribution}/{distribution}.yaml"), "type": "File" },
            }],
        },
    })
}

fn environment(node: &ClusterNode<'_>, vip: &Vip<'_>) -> Vec<Value> {
    let device = management_device(node.config);
    let mut values = vec![
        ("vip_arp", "true"),
        ("vip_leaderelection", "true"),
        ("vip_leaseduration", "5"),
        ("vip_renewdeadline", "3"),
        ("vip_retryperiod", "1"),
        ("vip_subnet", "32"),
        ("k8s_config_file", KUBECONFIG),
        // The default port of kube-vip is used by the hypervisor's own.
        ("prometheus_server", "127.0.0.1:2113"),
    ];
    // The default is the card of the default route.
    values.extend(device.as_deref().map(|device| ("vip_interface", device)));
    values.extend(match vip {
        Vip::Static(address) => [
            ("cp_enable", "true"),
            ("svc_enable", "false"),
            ("cp_namespace", "kube-system"),
            ("vip_leasename", LEASE),
            ("address", address),
            ("port", "6443"),
        ],
        Vip::Dhcp { .. } => [
            ("cp_enable", "false"),
            ("svc_enable", "true"),
            ("svc_namespace", "kube-system"),
            ("svc_leasename", LEASE),
            ("lb_class_only", "true"),
            ("lb_class_name", CLASS),
        ],
    });
    let name =
        json!({ "name": "vip_nodename", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } });
    let values = values.into_iter().map(|(name, value)| json!({ "name": name, "value": value }));
    std::iter::once(name).chain(values).collect()
}

/// The service that an address from DHCP belongs to. The node that has the address answers on it itself, so the service has no
/// pods.
fn service(address: Option<&str>, mac: Option<&str>) -> Value {
    let mut annotations = Map::new();
    let mut put = |key: &str, value: &str| annotations.insert(format!("kube-vip.io/{key}"), json!(value));
    put("loadbalancerIPs", "0.0.0.0");
    put("allow-reconcile-without-endpoints", "true");
    if let Some(mac) = mac {
        put("hwaddr", &mac.to_ascii_lowercase());
    }
    if let Some(address) = address {
        put("requestedIP", address);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": SERVICE, "namespace": "kube-system", "annotations": annotations },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": CLASS,
            "allocateLoadBalancerNodePorts": false,
            "ports": [port()],
        },
    })
}

/// A port on which nothing listens: a service has to have one.
fn port() -> Value {
    json!({ "name": "none", "port": 1, "protocol": "TCP" })
}

/// From 1.2.0 on kube-vip takes up a service when it sees an EndpointSlice of it (`pkg/services/services.go`, `endpoints.go`). No
/// controller makes one for a service that selects no pods.
fn endpoints() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": SERVICE,
            "namespace": "kube-system",
            "labels": { "kubernetes.io/service-name": SERVICE },
        },
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [port()],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_of_an_address_from_dhcp_has_the_endpoints_that_kube_vip_waits_for() {
        let (service, endpoints) = (service(Some("192.0.2.10"), None), endpoints());
        assert!(service["spec"].get("selector").is_none());
        assert_eq!(
            service["metadata"]["annotations"]["kube-vip.io/allow-reconcile-without-endpoints"],
            "true"
        );
        let named = &endpoints["metadata"]["labels"]["kubernetes.io/service-name"];
        assert_eq!(named, &service["metadata"]["name"]);
        assert_eq!(endpoints["metadata"]["namespace"], service["metadata"]["namespace"]);
        assert_eq!(endpoints["ports"], service["spec"]["ports"]);
    }
}
