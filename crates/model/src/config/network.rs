//! Networks of the node.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::cidr::{Cidr, ParseCidrError};
use super::text::{InterfaceName, MacAddress};

/// The management network of the node: its cards make a bond, the bond is the port of a bridge, and the bridge, or a
/// VLAN on it, has the address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ManagementInterface {
    /// The network cards, by name or by hardware address.
    pub interfaces: Vec<Interface>,
    /// Where the address comes from.
    pub method: Method,
    /// Address, for `static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<Ipv4Addr>,
    /// Dotted network mask, for `static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_mask: Option<Ipv4Addr>,
    /// Default gateway, for `static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// Largest packet, 576 to 9000 bytes; 0 leaves it to the driver.
    pub mtu: u32,
    /// VLAN of the address, 2 to 4094; 0 and 1 mean untagged.
    #[schemars(range(max = 4094))]
    pub vlan_id: u32,
    /// How the cards work together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond_options: Option<BondOptions>,
}

/// A further network of the node, on cards of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// A short name; the bond is `NAME-bo`, the bridge `NAME-br`.
    pub name: super::NetworkName,
    /// The network cards, by name or by hardware address.
    pub interfaces: Vec<Interface>,
    /// Where the address comes from; `none` for a network that only virtual machines use.
    #[serde(default = "no_address")]
    pub method: NetworkMethod,
    /// Address, for `static`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<Ipv4Addr>,
    /// Dotted network mask, for `static`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_mask: Option<Ipv4Addr>,
    /// Largest packet, 576 to 9000 bytes; 0 leaves it to the driver.
    #[serde(default)]
    pub mtu: u32,
    /// VLAN of the address, 2 to 4094; 0 and 1 mean untagged.
    #[serde(default)]
    #[schemars(range(max = 4094))]
    pub vlan_id: u32,
    /// How the cards work together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond_options: Option<BondOptions>,
}

fn no_address() -> NetworkMethod {
    NetworkMethod::None
}

/// One network card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Interface {
    /// Kernel name, such as `ens3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<InterfaceName>,
    /// Permanent hardware address, such as `52:54:00:12:34:56`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hw_addr: Option<MacAddress>,
}

/// Where an address comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// From a DHCP server.
    #[default]
    Dhcp,
    /// From this document.
    Static,
}

/// Where the address of a further network comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMethod {
    /// The node has no address there.
    None,
    /// From a DHCP server.
    Dhcp,
    /// From this document.
    Static,
}

/// How the cards of a bond work together (the kernel's `Documentation/networking/bonding.rst`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BondOptions {
    /// The policy.
    pub mode: BondMode,
    /// Milliseconds between two looks at the links, 100 unless given; 0 never looks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10000))]
    pub miimon: Option<u32>,
    /// Milliseconds before a link that has come up is used; a multiple of `miimon`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updelay: Option<u32>,
    /// Milliseconds before a link that has gone down is given up; a multiple of `miimon`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downdelay: Option<u32>,
    /// The card to prefer, for `active-backup`, `balance-tlb` and `balance-alb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<InterfaceName>,
    /// How often LACP partners talk, for `802.3ad`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacp_rate: Option<LacpRate>,
    /// What decides the card of a packet, for `balance-xor`, `802.3ad` and `balance-tlb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xmit_hash_policy: Option<HashPolicy>,
}

/// The policy of a bond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BondMode {
    /// Packets go round the cards.
    BalanceRr,
    /// One card works, another takes over.
    #[default]
    ActiveBackup,
    /// A hash decides.
    BalanceXor,
    /// Every card sends everything.
    Broadcast,
    /// LACP.
    #[serde(rename = "802.3ad")]
    Lacp,
    /// The least busy card sends.
    BalanceTlb,
    /// The least busy card sends and receives.
    BalanceAlb,
}

impl BondMode {
    /// The kernel's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BalanceRr => "balance-rr",
            Self::ActiveBackup => "active-backup",
            Self::BalanceXor => "balance-xor",
            Self::Broadcast => "broadcast",
            Self::Lacp => "802.3ad",
            Self::BalanceTlb => "balance-tlb",
            Self::BalanceAlb => "balance-alb",
        }
    }
}

/// How often LACP partners talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LacpRate {
    /// Every 30 seconds.
    Slow,
    /// Every second.
    Fast,
}

/// What decides the card of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum HashPolicy {
    #[serde(rename = "layer2")]
    Layer2,
    #[serde(rename = "layer2+3")]
    Layer2And3,
    #[serde(rename = "layer3+4")]
    Layer3And4,
    #[serde(rename = "encap2+3")]
    Encap2And3,
    #[serde(rename = "encap3+4")]
    Encap3And4,
    #[serde(rename = "vlan+srcmac")]
    VlanAndSource,
}
