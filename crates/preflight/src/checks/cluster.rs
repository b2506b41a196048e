//! The networks of the cluster must not overlap those around the node, and the address of a node with etcd must not change.

use std::net::Ipv4Addr;

use super::join;
use crate::check::{CheckOutcome, CheckSubject};
use crate::planned_node::PlannedCluster;
use cluster::join_query::ClusterNetworks;
use model::config::{Cidr, Distribution};

/// Devices that a cluster makes on its nodes: bridges and tunnels of the pods' networks.
const OF_CLUSTERS: [&str; 8] = ["cni", "flannel", "cali", "tunl", "vxlan.", "cilium", "kube-", "lxc"];

/// The cluster of the node; otherwise the outcome of the check.
fn planned<'a>(subject: &'a CheckSubject<'_>) -> Result<&'a PlannedCluster, CheckOutcome> {
    let cluster = subject.node.cluster.as_ref();
    cluster.ok_or_else(|| CheckOutcome::skipped("the node joins no cluster"))
}

pub(super) fn networks(subject: &CheckSubject<'_>) -> CheckOutcome {
    let cluster = match planned(subject) {
        Ok(cluster) => cluster,
        Err(outcome) => return outcome,
    };
    // A cluster to join has its networks, whatever the document says.
    let told = join::networks(subject);
    let of_cluster = told.unwrap_or(cluster.networks);
    let ClusterNetworks { pods, services } = of_cluster;
    let next = match told {
        Some(_) => {
            "The networks of a cluster cannot be changed: give the node an address in another network."
        }
        None => {
            "Set install.cluster_pod_cidr and install.cluster_service_cidr to networks that are used nowhere else."
        }
    };
    for (name, network) in [("pods", pods), ("services", services)] {
        if let Some(around) = around(subject).find(|(_, around)| around.overlaps(network)) {
            let (place, around) = around;
            let what = format!(
                "the network of the cluster's {name}, {network}, overlaps {around} {place}, whose machines could not be reached"
            );
            return CheckOutcome::found(what, next);
        }
    }
    CheckOutcome::passed(format!(
        "{pods} for pods and {services} for services overlap no network of this machine"
    ))
}

/// The networks that the node will be in, and where: those of fixed addresses, and with DHCP those that this system has from it.
fn around<'a>(subject: &'a CheckSubject<'_>) -> impl Iterator<Item = (String, Cidr)> + 'a {
    let claims = subject.node.claims.iter();
    let fixed = claims.map(|claim| (format!("of {}", claim.key), host(claim.address)));
    let own = if subject.node.dhcp { subject.network.networks() } else { Vec::new() };
    let own =
        own.into_iter().filter(|(device, _)| !OF_CLUSTERS.iter().any(|prefix| device.starts_with(prefix)));
    fixed.chain(own.map(|(device, network)| (format!("at {device}"), network)))
}

fn host(address: Ipv4Addr) -> Cidr {
    Cidr::containing(address, 32)
}

/// Members of etcd know each other by their addresses, which are also in their certificates.
pub(super) fn lasting_address(subject: &CheckSubject<'_>) -> CheckOutcome {
    let cluster = match planned(subject) {
        Ok(cluster) => cluster,
        Err(outcome) => return outcome,
    };
    if subject.node.etcd_address_can_change() {
        return CheckOutcome::found(
            "the node runs etcd, which knows its members by their addresses, and a DHCP server can change that of this node",
            "Give the node a fixed address (`install.management_interface`, `method: static`), or let the DHCP server reserve \
             this one.",
        );
    }
    match (cluster.distribution, cluster.keeps_etcd) {
        (Distribution::Rke2 | Distribution::K3s, _) => {
            CheckOutcome::skipped(format!("is not asked for {}", cluster.distribution.name()))
        }
        (Distribution::Kubeadm, false) => CheckOutcome::skipped("the node keeps no etcd"),
        (Distribution::Kubeadm, true) => CheckOutcome::passed("the address of the node is fixed"),
    }
}
