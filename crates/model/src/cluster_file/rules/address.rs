//! The address of the cluster: known to the machines that join, of no machine, and in the certificate.

use std::net::Ipv4Addr;

use super::unique;
use crate::cluster_file::document::ClusterFile;
use crate::cluster_file::layers::ClusterNode;
use document::finding::Finding;

const VIP: &str = "cluster.install.vip";
const URL: &str = "cluster.server_url";

/// Machines that join know where.
pub(super) fn is_known(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    if file.address().is_some() || nodes.iter().all(|node| node.creates) {
        return Vec::new();
    }
    let message = "machines that join need the cluster's address, `install.vip`, or its name as `server_url`";
    vec![Finding::new(VIP, "missing-value", message)]
}

/// The address moves from machine to machine, so no machine has it as its own.
pub(super) fn is_no_nodes_own(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let shared = file.shared_config();
    let owner = |ip: Ipv4Addr| {
        let has = |node: &&ClusterNode| {
            node.config.iter().flat_map(unique::own_addresses).any(|(_, own)| own == ip)
        };
        nodes.iter().find(has)
    };
    let mut findings = Vec::new();
    // The rules of the first node report its own address.
    if let Some(node) = shared.install.vip.and_then(owner).filter(|node| !node.creates) {
        let message = format!("this is the address of {}", node.name);
        findings.push(Finding::new(VIP, "unusable-vip", message));
    }
    let host = shared.server_url.as_deref().map(host);
    if let Some(node) = host.and_then(|host| host.parse().ok()).and_then(owner) {
        let message = format!(
            "this is the address of {}, not of the cluster: without that machine nobody could join",
            node.name
        );
        findings.push(Finding::new(URL, "unusable-address", message));
    }
    findings
}

/// Machines that join check the certificate for the name in `server_url`.
pub(super) fn is_certified(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let shared = file.shared_config();
    let Some(url) = &shared.server_url else { return Vec::new() };
    // An address that the cluster should not have at all needs no certificate.
    if is_no_nodes_own(file, nodes).iter().any(|finding| finding.path == URL) {
        return Vec::new();
    }
    let host = host(url);
    let is_vip = shared.install.vip.is_some_and(|vip| vip.to_string() == host);
    if is_vip
        || shared.sans.iter().any(|san| san.eq_ignore_ascii_case(host))
        || nodes.iter().all(|node| node.creates)
    {
        return Vec::new();
    }
    let message = "the certificate of the cluster does not name this host; put it into `cluster.sans`";
    vec![Finding::new(URL, "uncertified-name", message).suggest(format!("sans: [{host}]"))]
}

/// The name or the address in the URL of a cluster.
fn host(url: &str) -> &str {
    let rest = url.strip_prefix("https://").unwrap_or(url);
    rest.split([':', '/']).next().unwrap_or_default()
}
