//! Values that no two machines may share.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::net::Ipv4Addr;

use crate::cluster_file::document::ClusterFile;
use crate::cluster_file::layers::ClusterNode;
use crate::cluster_file::places::pool;
use crate::config::InstallConfig;
use document::finding::Finding;
use document::shape::join;

/// A value of one node, with its path in the install configuration.
type PlacedValue<T> = (String, T);

/// Pools have different names.
pub(super) fn pools(file: &ClusterFile, _: &[ClusterNode]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut names = HashSet::new();
    for (later, group) in file.pools.iter().enumerate() {
        if group.name.as_ref().is_some_and(|name| !names.insert(name)) {
            let message = "a pool of this name is listed already";
            findings.push(Finding::new(join(&pool(later), "name"), "duplicate-name", message));
        }
    }
    findings
}

/// Machines have different names.
pub(super) fn hostnames(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let name = |config: &InstallConfig| {
        config.os.hostname.iter().map(|name| ("os.hostname".to_owned(), name.to_string())).collect()
    };
    repeated(file, nodes, name, "duplicate-name", |_, _| "another machine has this name".to_owned())
}

/// Machines have different addresses, which are also no gateway's.
pub(super) fn addresses(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let code = "duplicate-address";
    let told = |other: &ClusterNode, ip: &Ipv4Addr| format!("{} has the address {ip} already", other.name);
    let mut findings = repeated(file, nodes, own_addresses, code, told);
    let gateway = |node: &ClusterNode| node.config.as_ref()?.install.management_interface.as_ref()?.gateway;
    let mut gateways: HashMap<Ipv4Addr, &ClusterNode> = HashMap::new();
    for node in nodes {
        if let Some(gateway) = gateway(node) {
            gateways.entry(gateway).or_insert(node);
        }
    }
    for node in nodes {
        for (path, ip) in node.config.iter().flat_map(own_addresses) {
            // That a node is its own gateway, its own rules say.
            if let Some(other) = gateways.get(&ip).filter(|_| gateway(node) != Some(ip)) {
                let message =
                    format!("{} has the gateway {ip}, which is not a machine of the cluster", other.name);
                findings.push(Finding::new(node.at(file, &path), code, message));
            }
        }
    }
    findings
}

/// The static addresses of a node.
pub(super) fn own_addresses(config: &InstallConfig) -> Vec<PlacedValue<Ipv4Addr>> {
    let management = config.install.management_interface.iter().filter_map(|network| network.ip);
    let management = management.map(|ip| ("install.management_interface.ip".to_owned(), ip));
    let further = config.install.networks.iter().enumerate();
    let further =
        further.filter_map(|(index, network)| Some((format!("install.networks[{index}].ip"), network.ip?)));
    management.chain(further).collect()
}

/// No two machines have a card of the same hardware address.
pub(super) fn cards(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let told =
        |other: &ClusterNode, mac: &String| format!("{} has the hardware address {mac} already", other.name);
    let mut findings = repeated(file, nodes, own_cards, "duplicate-hardware-address", told);
    let Some(vip) = file.shared_config().install.vip_hw_addr else { return findings };
    let vip = vip.to_ascii_lowercase();
    let owner = nodes.iter().find(|node| node.config.iter().flat_map(own_cards).any(|(_, mac)| mac == vip));
    findings.extend(owner.map(|node| {
        let message = format!("{} has a card of this hardware address", node.name);
        Finding::new("cluster.install.vip_hw_addr", "duplicate-hardware-address", message)
    }));
    findings
}

/// The hardware addresses of a node's cards.
pub(in crate::cluster_file) fn own_cards(config: &InstallConfig) -> Vec<PlacedValue<String>> {
    let management = config.install.management_interface.iter();
    let management =
        management.map(|network| ("install.management_interface".to_owned(), &network.interfaces));
    let further = config.install.networks.iter().enumerate();
    let further = further.map(|(index, network)| (format!("install.networks[{index}]"), &network.interfaces));
    let cards = management.chain(further).flat_map(|(path, cards)| {
        let card = move |(index, card): (usize, &crate::config::Interface)| {
            Some((
                format!("{path}.interfaces[{index}].hw_addr"),
                card.hw_addr.as_deref()?.to_ascii_lowercase(),
            ))
        };
        cards.iter().enumerate().filter_map(card).collect::<Vec<_>>()
    });
    cards.collect()
}

/// A finding for each value that an earlier node has too.
fn repeated<T: Eq + Hash + Display>(
    file: &ClusterFile,
    nodes: &[ClusterNode],
    values: impl Fn(&InstallConfig) -> Vec<PlacedValue<T>>,
    code: &'static str,
    message: impl Fn(&ClusterNode, &T) -> String,
) -> Vec<Finding> {
    let all: Vec<_> = nodes
        .iter()
        .flat_map(|node| node.config.iter().flat_map(&values).map(move |(path, value)| (node, path, value)))
        .collect();
    let mut findings = Vec::new();
    let mut first: HashMap<&T, &ClusterNode> = HashMap::new();
    for (node, path, value) in &all {
        let other = *first.entry(value).or_insert(node);
        // The rules of the node report what one machine has twice.
        if !std::ptr::eq(other, *node) {
            findings.push(Finding::new(node.at(file, path), code, message(other, value)));
        }
    }
    findings
}
