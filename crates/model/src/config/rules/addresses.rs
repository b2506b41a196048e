//! Addresses of the node in its networks, and of its cards for disks.

use std::net::Ipv4Addr;

use document::finding::Finding;

use super::ipv4::{is_one_machine, prefix_length, reserved};
use super::network::{NetworkKind, NetworkView, views_with_disks};
use super::shared::repeated;
use crate::config::InstallConfig;
use crate::config::network::NetworkMethod;

/// The keys of a static address, with whether it needs them. Further networks have no gateway, and disks may be in the card's own network.
fn keys(view: &NetworkView<'_>) -> Vec<(&'static str, Option<Ipv4Addr>, bool)> {
    let gateway = match view.kind {
        NetworkKind::Management => Some(("gateway", view.gateway, true)),
        NetworkKind::Disks => Some(("gateway", view.gateway, false)),
        NetworkKind::Further(_) => None,
    };
    [("ip", view.ip, true), ("subnet_mask", view.mask, true)].into_iter().chain(gateway).collect()
}

/// A static network has everything that DHCP would have told.
pub(super) fn static_is_complete(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for view in views_with_disks(config).iter().filter(|view| view.method == NetworkMethod::Static) {
        for (key, ..) in keys(view).iter().filter(|(_, value, needed)| *needed && value.is_none()) {
            let message = format!("`method: static` needs `{key}`");
            findings.push(Finding::new(view.path(key), "missing-value", message));
        }
        if view.is_management() && config.os.dns_nameservers.is_empty() {
            let message = "a management network with `method: static` needs `os.dns_nameservers`";
            findings.push(Finding::new("os.dns_nameservers", "missing-value", message));
        }
    }
    findings
}

/// Without the method the addresses of the document would do nothing.
pub(super) fn only_static_has_addresses(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for view in views_with_disks(config).iter().filter(|view| view.method != NetworkMethod::Static) {
        for (key, ..) in keys(view).iter().filter(|(_, value, _)| value.is_some()) {
            let message = format!("`{key}` does nothing unless the method is static");
            findings.push(Finding::new(view.path(key), "needs-static", message).suggest("method: static"));
        }
    }
    findings
}

/// Address, mask and gateway make up a network in which the node can talk.
pub(super) fn addresses_fit(config: &InstallConfig) -> Vec<Finding> {
    views_with_disks(config).iter().flat_map(fits).collect()
}

fn fits(view: &NetworkView<'_>) -> Vec<Finding> {
    let (Some(ip), Some(mask)) = (view.ip, view.mask) else { return Vec::new() };
    let Some(length) = prefix_length(mask) else {
        let message = "the bits of a network mask are ones first and then zeros, as in 255.255.255.0";
        let finding = Finding::new(view.path("subnet_mask"), "invalid-mask", message);
        // A wildcard, as access lists of routers have it, is the same mask turned over.
        let turned = Ipv4Addr::from_bits(!mask.to_bits());
        return vec![match prefix_length(turned) {
            Some(_) => finding.suggest(turned.to_string()),
            None => finding,
        }];
    };
    let mut findings = Vec::new();
    if !is_one_machine(ip) {
        let message = "no network card can have this address";
        findings.push(Finding::new(view.path("ip"), "unusable-address", message));
    } else if let Some(what) = reserved(ip, mask, length) {
        let message = format!("this is the {what} address of its network, not one of a node");
        findings.push(Finding::new(view.path("ip"), "unusable-address", message));
    }
    findings.extend(view.gateway.and_then(|gateway| gateway_fits(view, (ip, mask, length), gateway)));
    findings
}

fn gateway_fits(view: &NetworkView<'_>, own: (Ipv4Addr, Ipv4Addr, u8), gateway: Ipv4Addr) -> Option<Finding> {
    let (ip, mask, length) = own;
    let message = if gateway == ip {
        "the gateway is the node itself".to_owned()
    } else if length == 32 && is_one_machine(gateway) {
        let message = "a network of one address has no gateway inside it; the node gets a route to the gateway over this \
                       card, as some hosters want it";
        return Some(Finding::warning(view.path("gateway"), "gateway-on-link", message));
    } else if gateway & mask != ip & mask {
        format!("the gateway is outside the node's network {}/{length}", ip & mask)
    } else {
        format!("this is the {} address of its network, not a gateway", reserved(gateway, mask, length)?)
    };
    Some(Finding::new(view.path("gateway"), "gateway-unreachable", message))
}

/// Name servers are machines, each asked once.
pub(super) fn name_servers(config: &InstallConfig) -> Vec<Finding> {
    let servers = &config.os.dns_nameservers;
    let path = |index: usize| format!("os.dns_nameservers[{index}]");
    let unusable = servers.iter().enumerate().filter(|(_, server)| !is_one_machine(**server));
    let message = "no name server can have this address";
    let mut findings: Vec<_> =
        unusable.map(|(index, _)| Finding::new(path(index), "unusable-address", message)).collect();
    let again = "this name server is listed already";
    findings
        .extend(repeated(servers).map(|(later, _)| Finding::warning(path(later), "repeated-entry", again)));
    findings
}
