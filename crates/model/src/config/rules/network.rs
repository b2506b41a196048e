//! The networks of a document as one list, for rules that hold for all of them.

use std::net::Ipv4Addr;

use super::ipv4::prefix_length;
use crate::config::network::NetworkMethod;
use crate::config::{BondOptions, Cidr, InstallConfig, Interface, Method};

pub(crate) const MANAGEMENT: &str = "install.management_interface";

/// One network, whichever part of the document it comes from.
#[derive(Debug)]
pub(super) struct NetworkView<'a> {
    group: String,
    /// Its name; none for the management network.
    pub(super) name: Option<&'a str>,
    pub(super) cards: &'a [Interface],
    pub(super) method: NetworkMethod,
    pub(super) ip: Option<Ipv4Addr>,
    pub(super) mask: Option<Ipv4Addr>,
    pub(super) gateway: Option<Ipv4Addr>,
    pub(super) mtu: u32,
    pub(super) vlan: u32,
    pub(super) bond: Option<&'a BondOptions>,
}

impl NetworkView<'_> {
    pub(super) fn path(&self, key: &str) -> String {
        format!("{}.{key}", self.group)
    }

    /// How messages call it.
    pub(super) fn title(&self) -> String {
        self.name.map_or_else(|| "the management network".to_owned(), |name| format!("the network `{name}`"))
    }

    pub(super) fn is_management(&self) -> bool {
        self.name.is_none()
    }

    pub(super) fn subnet(&self) -> Option<Cidr> {
        let ip = self.ip.filter(|_| self.method == NetworkMethod::Static)?;
        Some(Cidr::containing(ip, self.mask.and_then(prefix_length)?))
    }
}

/// The management network, where the document has one, and the further ones.
pub(super) fn views(config: &InstallConfig) -> Vec<NetworkView<'_>> {
    let management = config.install.management_interface.iter().map(|network| NetworkView {
        group: MANAGEMENT.to_owned(),
        name: None,
        cards: &network.interfaces,
        method: match network.method {
            Method::Dhcp => NetworkMethod::Dhcp,
            Method::Static => NetworkMethod::Static,
        },
        ip: network.ip,
        mask: network.subnet_mask,
        gateway: network.gateway,
        mtu: network.mtu,
        vlan: network.vlan_id,
        bond: network.bond_options.as_ref(),
    });
    let further = config.install.networks.iter().enumerate().map(|(index, network)| NetworkView {
        group: format!("install.networks[{index}]"),
        name: Some(&network.name),
        cards: &network.interfaces,
        method: network.method,
        ip: network.ip,
        mask: network.subnet_mask,
        gateway: None,
        mtu: network.mtu,
        vlan: network.vlan_id,
        bond: network.bond_options.as_ref(),
    });
    management.chain(further).collect()
}
