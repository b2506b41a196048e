//! The nodes of a cluster, with what matters to one that joins.

use std::net::Ipv4Addr;

use crate::kubernetes::node::{Node, NodeList};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterPeer {
    pub name: String,
    /// Whether it votes in etcd and runs no control plane.
    pub witness: bool,
    /// Whether it has a member of etcd.
    pub keeps_etcd: bool,
    pub addresses: Vec<Ipv4Addr>,
    /// The system UUID of the firmware.
    pub uuid: String,
    /// Whether the cluster has heard of it lately and has no complaint.
    pub ready: bool,
}

/// Reads a `NodeList` of the API.
pub(super) fn members(json: &[u8]) -> serde_json::Result<Vec<ClusterPeer>> {
    let list: NodeList = serde_json::from_slice(json)?;
    Ok(list.items.into_iter().map(ClusterPeer::from).collect())
}

/// Reads a `Node` of the API.
pub(super) fn member(json: &[u8]) -> serde_json::Result<ClusterPeer> {
    serde_json::from_slice::<Node>(json).map(ClusterPeer::from)
}

impl From<Node> for ClusterPeer {
    fn from(node: Node) -> Self {
        // Ours has a label of its own; the distributions' label follows from what runs on the node.
        let etcd_only =
            node.is("node-role.kubernetes.io/etcd") && !node.is("node-role.kubernetes.io/control-plane");
        let witness = node.is("node-role.harvesterhci.io/witness") || etcd_only;
        // kubeadm gives its labels no value, and runs etcd beside every control plane.
        let has = |label: &str| node.metadata.labels.get(label).is_some_and(|value| value != "false");
        let keeps_etcd =
            witness || has("node-role.kubernetes.io/control-plane") || has("node-role.kubernetes.io/etcd");
        let (addresses, ready) = (node.addresses(), node.is_ready());
        let Node { metadata, status, .. } = node;
        Self {
            name: metadata.name,
            witness,
            keeps_etcd,
            addresses,
            uuid: status.node_info.system_uuid,
            ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_read_with_what_matters_here() {
        let list = json!({ "kind": "NodeList", "items": [
            { "metadata": { "name": "n1", "labels": { "node-role.kubernetes.io/etcd": "true",
                "node-role.kubernetes.io/control-plane": "true" } },
              "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.11" },
                { "type": "Hostname", "address": "n1" }, { "type": "InternalIP", "address": "2001:db8::1" }],
                "nodeInfo": { "systemUUID": "4C4C4544", "kubeletVersion": "v1.33.1+rke2r1" },
                "conditions": [{ "type": "DiskPressure", "status": "False" }, { "type": "Ready", "status": "True" }] } },
            { "metadata": { "name": "n2", "labels": { "node-role.kubernetes.io/etcd": "true" } } },
            { "metadata": { "name": "n3", "labels": { "node-role.harvesterhci.io/witness": "true" } } },
            { "metadata": { "name": "n4" }, "status": {
                "conditions": [{ "type": "Ready", "status": "Unknown" }, { "type": "PIDPressure", "status": "True" }] } },
            { "metadata": { "name": "n5", "labels": { "node-role.kubernetes.io/control-plane": "" } } },
        ] });
        let members = members(list.to_string().as_bytes()).unwrap();
        let told = members.iter().map(|member| (member.name.as_str(), member.witness, member.keeps_etcd));
        let told: Vec<_> = told.collect();
        assert_eq!(
            told,
            [
                ("n1", false, true),
                ("n2", true, true),
                ("n3", true, true),
                ("n4", false, false),
                ("n5", false, true)
            ]
        );
        assert_eq!(members[0].addresses, [Ipv4Addr::new(192, 0, 2, 11)]);
        assert_eq!(members[0].uuid, "4C4C4544");
        assert_eq!(
            members.iter().map(|member| member.ready).collect::<Vec<_>>(),
            [true, false, false, false, false]
        );
        assert!(super::members(b"{}").is_err());
    }
}
