//! Ranges of addresses: pods, services, the node's networks and those of the storage must not be mistaken for one
//! another.

use std::net::Ipv4Addr;

use super::ipv4::is_one_machine;
use super::network::views_with_disks;
use super::settings;
use crate::config::{Cidr, InstallConfig, Mode, Role};
use document::diagnostic::LISTED;
use document::finding::Finding;

/// Where pods are unless the document says.
pub const PODS: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 52, 0, 0), 16);
/// Where services are unless the document says.
pub const SERVICES: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 53, 0, 0), 16);
/// The cluster's name server has this address of the services unless the document says.
pub(super) const NAME_SERVER: u32 = 10;
/// Each node gets a network of 256 addresses for its pods.
const NODE_PREFIX: u8 = 24;
/// The largest network of services that the API server takes.
const SERVICE_PREFIX: u8 = 12;

const POD_KEY: &str = "install.cluster_pod_cidr";
const SERVICE_KEY: &str = "install.cluster_service_cidr";

/// A range with its place and what messages call it.
struct Range {
    path: String,
    title: String,
    cidr: Cidr,
    /// Parts of it that nothing uses.
    exclude: Vec<Cidr>,
    /// True for the network of a card for disks, which other such cards may be in.
    for_disks: bool,
}

pub(super) fn pods(config: &InstallConfig) -> Cidr {
    config.install.cluster_pod_cidr.unwrap_or_else(|| Cidr::containing(PODS.0, PODS.1))
}

pub(super) fn services(config: &InstallConfig) -> Cidr {
    config.install.cluster_service_cidr.unwrap_or_else(|| Cidr::containing(SERVICES.0, SERVICES.1))
}

fn all(config: &InstallConfig) -> Vec<Range> {
    let plain = |path: String, title: String, cidr| Range {
        path,
        title,
        cidr,
        exclude: Vec::new(),
        for_disks: false,
    };
    let mut ranges = Vec::new();
    // A worker is not told of them: it learns them from the cluster.
    let is_worker = config.install.mode == Mode::Join && config.install.role == Role::Worker;
    let told =
        !is_worker || config.install.cluster_pod_cidr.or(config.install.cluster_service_cidr).is_some();
    if config.install.mode != Mode::Install && told {
        ranges.push(plain(POD_KEY.into(), "the network of the pods".into(), pods(config)));
        ranges.push(plain(SERVICE_KEY.into(), "the network of the services".into(), services(config)));
    }
    for view in views_with_disks(config) {
        let range = view.subnet().map(|cidr| plain(view.path("ip"), view.title(), cidr));
        ranges.extend(range.map(|range| Range { for_disks: view.is_for_disks(), ..range }));
    }
    for (name, network) in settings::networks(config) {
        let title = format!("the range of the setting `{name}`");
        let path = format!("system_settings.{name}");
        ranges.push(Range { path, title, cidr: network.range, exclude: network.exclude, for_disks: false });
    }
    ranges
}

/// No address belongs to two ranges.
pub fn no_overlap(config: &InstallConfig) -> Vec<Finding> {
    let ranges = all(config);
    let mut findings = Vec::new();
    let mut last = None;
    for (index, later) in ranges.iter().enumerate() {
        for earlier in &ranges[..index] {
            if !later.meets(earlier) {
                continue;
            }
            // Of thousands that overlap one another, each is told once.
            if findings.len() > LISTED && last == Some(index) {
                break;
            }
            last = Some(index);
            // The value of a setting may be a secret and is not repeated.
            let message = if later.path.starts_with("system_settings") {
                format!("the range overlaps {}, {}", earlier.title, earlier.cidr)
            } else {
                format!("{}, {}, overlaps {}, {}", later.title, later.cidr, earlier.title, earlier.cidr)
            };
            findings.push(Finding::new(&later.path, "overlapping-networks", message));
        }
    }
    findings
}

impl Range {
    /// True if an address that is in use is in both.
    fn meets(&self, other: &Self) -> bool {
        // Of two networks that overlap, one holds the other.
        let common = if self.cidr.length() > other.cidr.length() { self.cidr } else { other.cidr };
        let unused = |cidr: &Cidr| cidr.length() <= common.length() && cidr.contains(common.address());
        let both_for_disks = self.for_disks && other.for_disks;
        !both_for_disks
            && self.cidr.overlaps(other.cidr)
            && !self.exclude.iter().chain(&other.exclude).any(unused)
    }
}

/// Pods and services have enough addresses, and services not more than Kubernetes takes.
pub(super) fn large_enough(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    if config.install.cluster_pod_cidr.is_some_and(|pods| pods.length() > NODE_PREFIX) {
        let message = "the pod network is too small: every node takes a /24 of it";
        findings.push(Finding::new(POD_KEY, "network-size", message));
    }
    match config.install.cluster_service_cidr {
        Some(services) if services.length() < SERVICE_PREFIX => {
            let message = "the service network is too large: it may be a /12 at most";
            findings.push(Finding::new(SERVICE_KEY, "network-size", message));
        }
        Some(services) if config.install.cluster_dns.is_none() && services.nth(NAME_SERVER).is_none() => {
            let message = "the service network is too small: the name server has its tenth address, so it must be a /28 or larger";
            findings.push(Finding::new(SERVICE_KEY, "network-size", message));
        }
        _ => {}
    }
    findings
}

/// The cluster's name server is a service, and not the API.
pub(super) fn name_server(config: &InstallConfig) -> Vec<Finding> {
    let Some(server) = config.install.cluster_dns else { return Vec::new() };
    let services = services(config);
    let finding = |message: String| vec![Finding::new("install.cluster_dns", "unusable-address", message)];
    if !services.contains(server) || !is_one_machine(server) {
        let suggestion = services.nth(NAME_SERVER).map(|address| address.to_string());
        let message = format!("the cluster's name server is outside the network of the services, {services}");
        return finding(message)
            .into_iter()
            .map(|finding| Finding { suggestion: suggestion.clone(), ..finding })
            .collect();
    }
    if server == services.address() {
        return finding(format!("this is the address of the network {services} itself"));
    }
    if services.nth(1) == Some(server) {
        return finding("this is the first address of the services, which the API server has".to_owned());
    }
    Vec::new()
}
