//! The Node object of this node, and what the node writes into it with its kubelet's access.
//!
//! A kubelet may change the annotations of its own node and make events, on servers, witnesses and workers alike (Kubernetes,
//! "Using Node Authorization"; admission `NodeRestriction`). It may change neither taints, nor leases of others, nor other nodes.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::api::kubelet::KubeApi;
use crate::configuration::ClusterMember;
use machine::installed_node::InstalledNode;
use model::config::Distribution;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObject {
    pub name: String,
    pub distribution: Distribution,
    /// The kubelet's access, on the node.
    kubeconfig: String,
}

/// Something that happened on a node, for `kubectl describe node` (Kubernetes API, Event v1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// One word in the style of Kubernetes, such as `UpdateGood`.
    pub reason: &'static str,
    pub message: String,
    /// Whether somebody should look.
    pub warning: bool,
    /// When, in RFC 3339.
    pub at: String,
}

impl NodeObject {
    /// The node of the document at `root`; none if it has no part in a cluster.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        let node = InstalledNode::open(root).ok()?;
        let member = ClusterMember::of(&node.config)?;
        Some(Self {
            name: node.hostname()?,
            distribution: member.distribution,
            kubeconfig: member.kubeconfig(),
        })
    }

    /// Sets annotations of the node; a value that is none removes one.
    ///
    /// # Errors
    /// Why the cluster did not take them, a clause.
    pub fn annotate(
        &self,
        root: &Path,
        annotations: &BTreeMap<&'static str, Option<String>>,
    ) -> Result<(), String> {
        let patch = json!({ "metadata": { "annotations": annotations } });
        KubeApi::open(root, &self.kubeconfig)?.patch(&format!("/api/v1/nodes/{}", self.name), &patch)
    }

    /// Tells the cluster of an event on the node.
    ///
    /// # Errors
    /// As for [`Self::annotate`].
    pub fn tell(&self, root: &Path, event: &NodeEvent) -> Result<(), String> {
        let api = KubeApi::open(root, &self.kubeconfig)?;
        api.create("/api/v1/namespaces/default/events", &self.event(event))
    }

    /// As the kubelet writes its own: nodes have no namespace, and are found by their name in place of an id (kubelet
    /// `nodeRef`).
    fn event(&self, event: &NodeEvent) -> Value {
        let NodeEvent { reason, message, warning, at } = event;
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "generateName": format!("{}.", self.name), "namespace": "default" },
            "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.name },
            "reason": reason,
            "message": message,
            "type": if *warning { "Warning" } else { "Normal" },
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
            "source": { "component": "nqrust-update", "host": self.name },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::paths::{DOCUMENT, below};

    const DOCUMENT_TEXT: &str = "server_url: https://192.0.2.10:6443\ntoken: a-token-of-enough-length\n\
                                 os: {hostname: node-2}\ninstall: {mode: join, role: worker}\n\
                                 kubernetes: {distribution: kubeadm}\n";

    #[test]
    fn a_node_without_a_cluster_has_no_object_there() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(NodeObject::read(root.path()), None, "no document");
        let document = below(root.path(), DOCUMENT);
        std::fs::create_dir_all(document.parent().unwrap()).unwrap();
        std::fs::write(&document, "install: {mode: install}\n").unwrap();
        assert_eq!(NodeObject::read(root.path()), None);
        std::fs::write(&document, DOCUMENT_TEXT).unwrap();
        let node = NodeObject::read(root.path()).unwrap();
        assert_eq!((node.name.as_str(), node.distribution), ("node-2", Distribution::Kubeadm));
        let why = node.annotate(root.path(), &BTreeMap::new()).unwrap_err();
        assert!(why.contains("/etc/kubernetes/kubelet.conf"), "{why}");
    }

    #[test]
    fn an_event_is_found_by_the_name_of_its_node() {
        let node =
            NodeObject { name: "n1".into(), distribution: Distribution::Kubeadm, kubeconfig: String::new() };
        let event = NodeEvent {
            reason: "UpdateGood",
            message: "2 is good".into(),
            warning: false,
            at: "2026-01-01T00:00:00Z".into(),
        };
        let told = node.event(&event);
        assert_eq!((&told["involvedObject"]["uid"], &told["type"]), (&json!("n1"), &json!("Normal")));
        let warning = NodeEvent { warning: true, ..event };
        assert_eq!(node.event(&warning)["type"], "Warning");
    }
}
