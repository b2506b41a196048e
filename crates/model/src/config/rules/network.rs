//! The networks of a document and its cards for disks as one list, for rules that hold for all of them.

use std::net::Ipv4Addr;

use super::ipv4::prefix_length;
use crate::config::network::NetworkMethod;
use crate::config::{BondOptions, Cidr, InstallConfig, Interface};

pub(crate) const MANAGEMENT: &str = "install.management_interface";
const DISK_CARDS: &str = "install.network_disks.cards";

/// What a network is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkKind<'a> {
    Management,
    /// A further network, with its name.
    Further(&'a str),
    /// A card over which disks are reached. It has its network for itself, without a bond.
    Disks,
}

/// One network, whichever part of the document it comes from.
#[derive(Debug)]
pub(super) struct NetworkView<'a> {
    group: String,
    pub(super) kind: NetworkKind<'a>,
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

    /// The path of a card, by its place in `cards`.
    pub(super) fn card_path(&self, index: usize) -> String {
        match self.kind {
            NetworkKind::Disks => self.path("interface"),
            NetworkKind::Management | NetworkKind::Further(_) => self.path(&format!("interfaces[{index}]")),
        }
    }

    /// How messages call it.
    pub(super) fn title(&self) -> String {
        match self.kind {
            NetworkKind::Management => "the management network".to_owned(),
            NetworkKind::Further(name) => format!("the network `{name}`"),
            NetworkKind::Disks => "the network of a card for disks".to_owned(),
        }
    }

    /// The name of a further network.
    pub(super) fn name(&self) -> Option<&str> {
        match self.kind {
            NetworkKind::Further(name) => Some(name),
            NetworkKind::Management | NetworkKind::Disks => None,
        }
    }

    pub(super) fn is_management(&self) -> bool {
        self.kind == NetworkKind::Management
    }

    pub(super) fn is_for_disks(&self) -> bool {
        self.kind == NetworkKind::Disks
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
        kind: NetworkKind::Management,
        cards: &network.interfaces,
        method: network.method.into(),
        ip: network.ip,
        mask: network.subnet_mask,
        gateway: network.gateway,
        mtu: network.mtu,
        vlan: network.vlan_id,
        bond: network.bond_options.as_ref(),
    });
    let further = config.install.networks.iter().enumerate().map(|(index, network)| NetworkView {
        group: format!("install.networks[{index}]"),
        kind: NetworkKind::Further(&network.name),
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

/// The same, and the cards for disks that are reached over the network.
pub(super) fn views_with_disks(config: &InstallConfig) -> Vec<NetworkView<'_>> {
    let cards = config.install.network_disks.iter().flat_map(|disks| &disks.cards).enumerate();
    let disks = cards.map(|(index, card)| NetworkView {
        group: format!("{DISK_CARDS}[{index}]"),
        kind: NetworkKind::Disks,
        cards: std::slice::from_ref(&card.interface),
        method: card.method.into(),
        ip: card.ip,
        mask: card.subnet_mask,
        gateway: card.gateway,
        mtu: card.mtu,
        vlan: card.vlan_id,
        bond: None,
    });
    views(config).into_iter().chain(disks).collect()
}
