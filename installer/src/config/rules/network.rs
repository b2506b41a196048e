//! The management network.

use std::net::Ipv4Addr;

use super::Finding;
use crate::config::{InstallConfig, ManagementInterface, Method};

const PATH: &str = "install.management_interface";

fn path(key: &str) -> String {
    format!("{PATH}.{key}")
}

fn management(config: &InstallConfig) -> Option<&ManagementInterface> {
    config.install.management_interface.as_ref()
}

/// Some card carries the management network.
pub(super) fn some_interface(config: &InstallConfig) -> Vec<Finding> {
    let Some(management) = management(config) else { return Vec::new() };
    match management.interfaces.len() {
        0 => vec![
            Finding::new(path("interfaces"), "missing-value", "the network card is not named")
                .suggest("interfaces: [{ name: ens3 }]"),
        ],
        _ => Vec::new(),
    }
}

/// Each card has a name or a hardware address.
pub(super) fn interfaces_are_named(config: &InstallConfig) -> Vec<Finding> {
    let cards = management(config).map(|management| management.interfaces.as_slice()).unwrap_or_default();
    let nameless = |(index, _)| {
        let message = "a network card needs `name` or `hw_addr`";
        Finding::new(path(&format!("interfaces[{index}]")), "missing-value", message)
    };
    let cards = cards.iter().enumerate();
    cards.filter(|(_, card)| card.name.is_none() && card.hw_addr.is_none()).map(nameless).collect()
}

/// The largest packet is one that IPv4 allows and that cards can send.
pub(super) fn packet_size(config: &InstallConfig) -> Vec<Finding> {
    let mtu = management(config).map_or(0, |management| management.mtu);
    if mtu == 0 || (576..=9000).contains(&mtu) {
        return Vec::new();
    }
    let message = "the largest packet has 576 to 9000 bytes; 0 leaves it to the driver";
    vec![Finding::new(path("mtu"), "mtu-out-of-range", message)]
}

/// A static network has everything that DHCP would have told.
pub(super) fn static_is_complete(config: &InstallConfig) -> Vec<Finding> {
    let Some(management) = management(config).filter(|m| m.method == Method::Static) else {
        return Vec::new();
    };
    let missing = |(key, value): &(&str, Option<Ipv4Addr>)| {
        value
            .is_none()
            .then(|| Finding::new(path(key), "missing-value", format!("`method: static` needs `{key}`")))
    };
    addresses(management).iter().filter_map(missing).collect()
}

/// With DHCP the addresses of the document would do nothing.
pub(super) fn only_static_has_addresses(config: &InstallConfig) -> Vec<Finding> {
    let Some(management) = management(config).filter(|m| m.method == Method::Dhcp) else { return Vec::new() };
    let idle = |(key, value): &(&str, Option<Ipv4Addr>)| {
        let message = format!("`{key}` does nothing unless the method is static");
        value.map(|_| Finding::new(path(key), "needs-static", message).suggest("method: static"))
    };
    addresses(management).iter().filter_map(idle).collect()
}

fn addresses(management: &ManagementInterface) -> [(&'static str, Option<Ipv4Addr>); 3] {
    [("ip", management.ip), ("subnet_mask", management.subnet_mask), ("gateway", management.gateway)]
}

/// Address, mask and gateway make up a network in which the node can talk.
pub(super) fn addresses_fit(config: &InstallConfig) -> Vec<Finding> {
    let Some(management) = management(config) else { return Vec::new() };
    let (Some(ip), Some(mask)) = (management.ip, management.subnet_mask) else { return Vec::new() };
    let Some(length) = prefix_length(mask) else {
        let message = "the bits of a network mask are ones first and then zeros, as in 255.255.255.0";
        return vec![Finding::new(path("subnet_mask"), "invalid-mask", message)];
    };
    let mut findings = Vec::new();
    if ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() || ip.is_broadcast() {
        findings.push(Finding::new(path("ip"), "unusable-address", "no network card can have this address"));
    } else if let Some(what) = reserved(ip, mask, length) {
        let message = format!("this is the {what} address of its network, not one of a node");
        findings.push(Finding::new(path("ip"), "unusable-address", message));
    }
    findings.extend(management.gateway.and_then(|gateway| gateway_fits(ip, mask, length, gateway)));
    findings
}

fn gateway_fits(ip: Ipv4Addr, mask: Ipv4Addr, length: u8, gateway: Ipv4Addr) -> Option<Finding> {
    let message = if gateway == ip {
        "the gateway is the node itself".to_owned()
    } else if gateway & mask != ip & mask {
        format!("the gateway is outside the node's network {}/{length}", ip & mask)
    } else {
        format!("this is the {} address of its network, not a gateway", reserved(gateway, mask, length)?)
    };
    Some(Finding::new(path("gateway"), "gateway-unreachable", message))
}

/// Whether an address names the network itself or all its nodes. Networks of two or fewer addresses have
/// neither (RFC 3021).
fn reserved(ip: Ipv4Addr, mask: Ipv4Addr, length: u8) -> Option<&'static str> {
    match ip & !mask {
        _ if length >= 31 => None,
        Ipv4Addr::UNSPECIFIED => Some("network"),
        host if host == !mask => Some("broadcast"),
        _ => None,
    }
}

/// The length of the prefix that a mask means; `None` where its ones are not all in front, or there are none.
#[must_use]
pub(crate) fn prefix_length(mask: Ipv4Addr) -> Option<u8> {
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
