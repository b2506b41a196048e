//! Networks of the node.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

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

/// An IPv4 network: its address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: Ipv4Addr,
    length: u8,
}

/// Text that is not an IPv4 network.
#[derive(Debug, thiserror::Error)]
pub enum ParseCidrError {
    /// Not an address, a slash and a length.
    #[error("not a network such as 10.52.0.0/16")]
    Form,
    /// Bits behind the prefix are set.
    #[error("the address of a node, not of the network {0}")]
    Host(Cidr),
}

impl Cidr {
    /// The network that `address` is in.
    #[must_use]
    pub fn containing(address: Ipv4Addr, length: u8) -> Self {
        let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
        Self { address: Ipv4Addr::from_bits(address.to_bits() & mask), length: length.min(32) }
    }

    /// Its first address.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// Bits of its prefix.
    #[must_use]
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether `address` is in it.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        Self::containing(address, self.length) == self
    }

    /// Whether an address is in both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        let length = self.length.min(other.length);
        Self::containing(self.address, length) == Self::containing(other.address, length)
    }

    /// The address so many after the first, if it is in the network.
    #[must_use]
    pub fn nth(self, number: u32) -> Option<Ipv4Addr> {
        let address = Ipv4Addr::from_bits(self.address.to_bits().checked_add(number)?);
        self.contains(address).then_some(address)
    }
}

impl FromStr for Cidr {
    type Err = ParseCidrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (address, length) = text.split_once('/').ok_or(ParseCidrError::Form)?;
        let address = address.parse().map_err(|_| ParseCidrError::Form)?;
        let digits = length.bytes().all(|b| b.is_ascii_digit()) && !length.starts_with('+');
        let length =
            length.parse().ok().filter(|length| digits && *length <= 32).ok_or(ParseCidrError::Form)?;
        let network = Self::containing(address, length);
        if network.address == address { Ok(network) } else { Err(ParseCidrError::Host(network)) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl TryFrom<String> for Cidr {
    type Error = ParseCidrError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Cidr> for String {
    fn from(cidr: Cidr) -> Self {
        cidr.to_string()
    }
}

impl JsonSchema for Cidr {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cidr".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "cidr" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_know_what_is_in_them() {
        let pods: Cidr = "10.52.0.0/16".parse().unwrap();
        assert!(pods.contains([10, 52, 255, 255].into()) && !pods.contains([10, 53, 0, 0].into()));
        assert!(
            pods.overlaps("10.0.0.0/8".parse().unwrap()) && !pods.overlaps("10.53.0.0/16".parse().unwrap())
        );
        assert_eq!(pods.nth(10), Some([10, 52, 0, 10].into()));
        assert_eq!("10.0.0.0/30".parse::<Cidr>().unwrap().nth(4), None);
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains([1, 2, 3, 4].into()));
        assert!(
            matches!("10.52.0.1/16".parse::<Cidr>(), Err(ParseCidrError::Host(network)) if network == pods)
        );
        for text in ["", "10.52.0.0", "10.52.0.0/33", "10.52.0.0/", "10.52.0.0/+8", "x/8"] {
            assert!(matches!(text.parse::<Cidr>(), Err(ParseCidrError::Form)), "{text}");
        }
    }
}
