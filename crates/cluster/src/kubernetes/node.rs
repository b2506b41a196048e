//! A node as the API has it (Kubernetes API, Node v1), with the parts that are read here.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Node {
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: NodeStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The network of the node's pods, once the controller manager has given it one.
    #[serde(rename = "podCIDR")]
    pub pods: Option<String>,
    /// Whether it is cordoned: it gets no further pods.
    pub unschedulable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    pub addresses: Vec<Address>,
    pub node_info: NodeInfo,
    pub conditions: Vec<Condition>,
    pub images: Vec<NodeImage>,
}

/// A container image that is on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeImage {
    pub names: Vec<String>,
    pub size_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Address {
    /// `InternalIP`, `Hostname` and others.
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    /// The system UUID of the firmware.
    #[serde(rename = "systemUUID")]
    pub system_uuid: String,
    /// The kernel's id of the boot in which the kubelet reported last.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// The version of the kubelet.
    #[serde(rename = "kubeletVersion")]
    pub kubelet_version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    #[serde(default)]
    pub message: String,
}

/// The answer of the API to a request for all nodes.
#[derive(Debug, Deserialize)]
pub struct NodeList {
    #[serde(default)]
    pub metadata: ListMetadata,
    pub items: Vec<Node>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMetadata {
    /// From where changes can be followed.
    pub resource_version: String,
}

impl Node {
    fn ready(&self) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == "Ready")
    }

    /// Whether the cluster has heard of it lately and has no complaint.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.unready_reason().is_none()
    }

    /// Why it is not ready, as its kubelet reports it.
    #[must_use]
    pub fn unready_reason(&self) -> Option<&str> {
        match self.ready() {
            Some(ready) if ready.status == "True" => None,
            Some(ready) => Some(&ready.message),
            None => Some("the kubelet has not reported its state yet"),
        }
    }

    /// Whether a label is there with the value `true`.
    #[must_use]
    pub fn is(&self, label: &str) -> bool {
        self.metadata.labels.get(label).is_some_and(|value| value == "true")
    }

    /// All its IPv4 addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        self.status.addresses.iter().filter_map(|address| address.address.parse().ok()).collect()
    }

    /// The address at which other nodes reach it, if that is IPv4.
    #[must_use]
    pub fn internal_address(&self) -> Option<Ipv4Addr> {
        let internal = self.status.addresses.iter().find(|address| address.kind == "InternalIP");
        internal.and_then(|address| address.address.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_tells_its_addresses_and_whether_it_is_ready() {
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "n1", "labels": { "a": "true", "b": "false" } },
            "spec": { "podCIDR": "10.52.0.0/24" },
            "status": {
                "addresses": [{ "type": "Hostname", "address": "n1" }, { "type": "ExternalIP", "address": "192.0.2.1" },
                    { "type": "InternalIP", "address": "192.0.2.11" }],
                "nodeInfo": { "systemUUID": "4C4C4544" },
                "conditions": [{ "type": "DiskPressure", "status": "False" }, { "type": "Ready", "status": "True" }],
            },
        }))
        .unwrap();
        assert!(node.is_ready() && node.is("a") && !node.is("b") && !node.is("c"));
        assert_eq!(node.addresses(), [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 11)]);
        assert_eq!(node.internal_address(), Some(Ipv4Addr::new(192, 0, 2, 11)));
        let new: Node = serde_json::from_value(json!({ "metadata": { "name": "n2" } })).unwrap();
        assert!(new.ready().is_none() && !new.is_ready() && new.internal_address().is_none());
        let silent = json!({ "metadata": { "name": "n3" }, "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
        assert!(!serde_json::from_value::<Node>(silent).unwrap().is_ready());
        assert!(serde_json::from_value::<Node>(json!({ "metadata": {} })).is_err());
    }
}
