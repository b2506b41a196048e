//! The virtual address of the control plane: one of the nodes that run it answers for the address in the management network.
//!
//! RKE2 and K3s get [`kube_vip`], a pod. The nodes of kubeadm get [`keepalived`], a service of the OS image: its address comes up
//! without an image and without the API.

mod keepalived;
mod kube_vip;

pub(crate) use self::keepalived::{CLUSTER, KEEPALIVED, VirtualRouter, is_alone, with_servers};

use super::cluster_node::ClusterNode;
use machine::node_files::NodeFile;
use model::config::Distribution;

pub(super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    match node.distribution() {
        _ if !node.controls() => Vec::new(),
        Distribution::Rke2 | Distribution::K3s => kube_vip::files(node),
        Distribution::Kubeadm => keepalived::files(),
    }
}
