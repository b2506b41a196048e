//! Addresses of the node in its networks.

use std::net::Ipv4Addr;

use super::Finding;
use super::network::{View, views};
use crate::config::InstallConfig;
use crate::config::network::NetworkMethod;

/// The keys of a static address; further networks have no gateway.
fn keys(view: &View<'_>) -> Vec<(&'static str, Option<Ipv4Addr>)> {
    let gateway = view.is_management().then_some(("gateway", view.gateway));
    [("ip", view.ip), ("subnet_mask", view.mask)].into_iter().chain(gateway).collect()
}

/// A static network has everything that DHCP would have told.
pub(super) fn static_is_complete(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for view in views(config).iter().filter(|view| view.method == NetworkMethod::Static) {
        for (key, _) in keys(view).iter().filter(|(_, value)| value.is_none()) {
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
    for view in views(config).iter().filter(|view| view.method != NetworkMethod::Static) {
        for (key, _) in keys(view).iter().filter(|(_, value)| value.is_some()) {
            let message = format!("`{key}` does nothing unless the method is static");
            findings.push(Finding::new(view.path(key), "needs-static", message).suggest("method: static"));
        }
    }
    findings
}

/// Address, mask and gateway make up a network in which the node can talk.
pub(super) fn addresses_fit(config: &InstallConfig) -> Vec<Finding> {
    views(config).iter().flat_map(fits).collect()
}

fn fits(view: &View<'_>) -> Vec<Finding> {
    let (Some(ip), Some(mask)) = (view.ip, view.mask) else { return Vec::new() };
    let Some(length) = prefix_length(mask) else {
        let message = "the bits of a network mask are ones first and then zeros, as in 255.255.255.0";
        return vec![Finding::new(view.path("subnet_mask"), "invalid-mask", message)];
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

fn gateway_fits(view: &View<'_>, own: (Ipv4Addr, Ipv4Addr, u8), gateway: Ipv4Addr) -> Option<Finding> {
    let (ip, mask, length) = own;
    let message = if gateway == ip {
        "the gateway is the node itself".to_owned()
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
    let again = "this name server stands here already";
    findings.extend(
        super::repeated(servers).map(|(later, _)| Finding::warning(path(later), "repeated-entry", again)),
    );
    findings
}

/// Whether an address can be that of one machine as others see it.
pub(super) fn is_one_machine(ip: Ipv4Addr) -> bool {
    !(ip.is_loopback() || ip.is_multicast() || ip.is_broadcast() || ip.octets()[0] == 0)
}

/// Whether an address names the network itself or all its nodes. Networks of two or fewer addresses have
/// neither (RFC 3021).
pub(super) fn reserved(ip: Ipv4Addr, mask: Ipv4Addr, length: u8) -> Option<&'static str> {
    match ip & !mask {
        _ if length >= 31 => None,
        Ipv4Addr::UNSPECIFIED => Some("network"),
        host if host == !mask => Some("broadcast"),
        _ => None,
    }
}

/// The length of the prefix that a mask means; `None` where its ones are not all in front, or there are none.
#[must_use]
pub fn prefix_length(mask: Ipv4Addr) -> Option<u8> {
    let bits = mask.to_bits();
    let length = bits.leading_ones();
    (length == bits.count_ones() && length > 0).then(|| u8::try_from(length).unwrap_or(32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_have_their_ones_in_front() {
        for (mask, length) in [([255, 255, 255, 0], 24), ([128, 0, 0, 0], 1), ([255, 255, 255, 255], 32)] {
            assert_eq!(prefix_length(mask.into()), Some(length));
        }
        for mask in [[255, 0, 255, 0], [0, 0, 0, 0], [0, 255, 255, 255]] {
            assert_eq!(prefix_length(mask.into()), None);
        }
    }

    proptest! {
        #[test]
        fn every_prefix_length_survives_its_mask(length in 1_u8..=32) {
            let mask = Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(length)));
            prop_assert_eq!(prefix_length(mask), Some(length));
        }
    }
}
