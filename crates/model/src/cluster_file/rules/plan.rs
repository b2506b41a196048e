//! One plan of the management network: the virtual address moves between machines by ARP, and packets between pods
//! are as large on one machine as on the other.

use crate::cluster_file::document::ClusterFile;
use crate::cluster_file::layers::ClusterNode;
use crate::config::rules::{MANAGEMENT, USUAL_PACKETS, prefix_length};
use crate::config::{Cidr, ManagementInterface, Method};
use document::finding::Finding;

fn path(key: &str) -> String {
    format!("{MANAGEMENT}.{key}")
}

/// The management networks, that of the first node in front.
fn networks(nodes: &[ClusterNode]) -> Vec<(&ClusterNode, ManagementInterface)> {
    let network =
        |node: &ClusterNode| node.config.as_ref().map(|config| config.install.management_interface.clone());
    let mut networks: Vec<_> =
        nodes.iter().filter_map(|node| Some((node, network(node)?.unwrap_or_default()))).collect();
    networks.sort_by_key(|(node, _)| !node.creates);
    networks
}

fn subnet(network: &ManagementInterface) -> Option<Cidr> {
    let ip = network.ip.filter(|_| network.method == Method::Static)?;
    Some(Cidr::containing(ip, network.subnet_mask.and_then(prefix_length)?))
}

/// All machines are in one network, and the cluster's address is in it too.
pub(super) fn one_subnet(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let networks = networks(nodes);
    let mut known = networks.iter().filter_map(|(node, network)| Some((*node, subnet(network)?)));
    let Some((first, plan)) = known.next() else { return Vec::new() };
    let mut findings: Vec<_> = known
        .filter(|(_, own)| *own != plan)
        .map(|(node, own)| {
            let message = format!("{} is in the network {own}, and {} in {plan}", node.name, first.name);
            Finding::new(node.at(file, &path("ip")), "different-subnet", message)
        })
        .collect();
    // Where the first node has a static address its own rules see the VIP.
    let vip = file.shared_config().install.vip.filter(|vip| !first.creates && !plan.contains(*vip));
    if vip.is_some() && first.may_serve() {
        let message = format!("the address is outside the network {plan} of {}", first.name);
        findings.push(Finding::new("cluster.install.vip", "unusable-vip", message));
    }
    findings
}

/// All machines send packets of the same size.
pub(super) fn one_packet_size(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let size = |network: &ManagementInterface| if network.mtu == 0 { USUAL_PACKETS } else { network.mtu };
    different(nodes, size, |node, own, first, plan| {
        let message = format!(
            "{} sends packets of {own} bytes, and {} of {plan}; one size for all",
            node.name, first.name
        );
        Finding::new(node.at(file, &path("mtu")), "different-mtu", message)
    })
}

/// All machines are in one VLAN. A port of a switch can tag for one of them, so it may be right otherwise.
pub(super) fn one_vlan(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let vlan = |network: &ManagementInterface| if network.vlan_id < 2 { 0 } else { network.vlan_id };
    let word = |vlan: u32| if vlan == 0 { "no VLAN".to_owned() } else { format!("the VLAN {vlan}") };
    different(nodes, vlan, |node, own, first, plan| {
        let message = format!("{} has {}, and {} has {}", node.name, word(own), first.name, word(plan));
        Finding::warning(node.at(file, &path("vlan_id")), "different-vlan", message)
    })
}

/// All machines have their addresses from the same place.
pub(super) fn one_method(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let word = |method| if method == Method::Static { "a static address" } else { "an address from DHCP" };
    let found = different(
        nodes,
        |network| network.method,
        |node, own, first, plan| {
            let message = format!("{} has {}, and {} has {}", node.name, word(own), first.name, word(plan));
            Finding::warning(node.at(file, &path("method")), "mixed-methods", message)
        },
    );
    found.into_iter().take(1).collect()
}

/// A finding for each node that differs from the first.
fn different<T: PartialEq + Copy>(
    nodes: &[ClusterNode],
    value: impl Fn(&ManagementInterface) -> T,
    finding: impl Fn(&ClusterNode, T, &ClusterNode, T) -> Finding,
) -> Vec<Finding> {
    let networks = networks(nodes);
    let Some((first, plan)) = networks.first().map(|(node, network)| (*node, value(network))) else {
        return Vec::new();
    };
    let rest = networks[1..].iter().map(|(node, network)| (*node, value(network)));
    rest.filter(|(_, own)| *own != plan).map(|(node, own)| finding(node, own, first, plan)).collect()
}
