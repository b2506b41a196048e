//! Networks of the node.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::cidr::{Cidr, ParseCidrError};
use super::text::{ArpTargets, InterfaceName, MacAddress};

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

impl From<Method> for NetworkMethod {
    fn from(method: Method) -> Self {
        match method {
            Method::Dhcp => Self::Dhcp,
            Method::Static => Self::Static,
        }
    }
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
    /// When a preferred card that has come back is used again; `always` unless given. For `active-backup`, `balance-tlb`
    /// and `balance-alb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_reselect: Option<PrimaryReselect>,
    /// How often LACP partners talk, for `802.3ad`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacp_rate: Option<LacpRate>,
    /// What decides the card of a packet, for `balance-xor`, `802.3ad` and `balance-tlb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xmit_hash_policy: Option<HashPolicy>,
    /// Which group of cards with one partner is used, for `802.3ad`; `stable` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ad_select: Option<AdSelect>,
    /// Priority of this system towards its LACP partner, for `802.3ad`; 65535 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub ad_actor_sys_prio: Option<u32>,
    /// Hardware address of this system towards its LACP partner, for `802.3ad`; that of the bond unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ad_actor_system: Option<MacAddress>,
    /// The user's part of the port key of LACP, for `802.3ad`; 0 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1023))]
    pub ad_user_port_key: Option<u32>,
    /// How many cards must work for the bond to count as up, for `802.3ad`; 0 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_links: Option<u32>,
    /// 1 takes what arrives on cards that wait, too; 0 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1))]
    pub all_slaves_active: Option<u32>,
    /// Milliseconds between two ARP requests that find out whether a link works, in place of `miimon`; needs
    /// `arp_ip_target`. Not for `802.3ad`, `balance-tlb` and `balance-alb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483647))]
    pub arp_interval: Option<u32>,
    /// Up to 16 addresses, joined by commas, that are asked by ARP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_ip_target: Option<ArpTargets>,
    /// Which ARP packets count as a sign of life; `none` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_validate: Option<ArpValidate>,
    /// Whether any or all of `arp_ip_target` must answer; `any` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_all_targets: Option<ArpAllTargets>,
    /// How many ARP and IPv6 announcements follow a change of the card, for `active-backup`; 1 unless given. The same
    /// as `num_unsol_na`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 255))]
    pub num_grat_arp: Option<u32>,
    /// The same as `num_grat_arp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 255))]
    pub num_unsol_na: Option<u32>,
    /// Milliseconds between these announcements; a multiple of `miimon`, 0 takes its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 300000))]
    pub peer_notif_delay: Option<u32>,
    /// Packets that one card sends before the next one does, for `balance-rr`; 1 unless given, 0 chooses at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 65535))]
    pub packets_per_slave: Option<u32>,
    /// How many IGMP reports follow a change of the card; 1 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 255))]
    pub resend_igmp: Option<u32>,
    /// 1 lets the least busy card send, 0 a hash decide, for `balance-tlb`; 1 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1))]
    pub tlb_dynamic_lb: Option<u32>,
    /// Seconds between two learning packets to the switches, for `balance-tlb` and `balance-alb`; 1 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483647))]
    pub lp_interval: Option<u32>,
    /// 1 asks the driver for the state of a link, 0 asks by ioctl; 1 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1))]
    pub use_carrier: Option<u32>,
}

impl BondOptions {
    /// The options that are given beside the mode, `primary` and `miimon`, by the kernel's names, with their values as it
    /// takes them.
    #[must_use]
    pub fn further(&self) -> Vec<(&'static str, String)> {
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        let options = [
            ("updelay", number(self.updelay)),
            ("downdelay", number(self.downdelay)),
            ("primary_reselect", self.primary_reselect.map(|word| word.name().to_owned())),
            ("lacp_rate", self.lacp_rate.map(|word| word.name().to_owned())),
            ("xmit_hash_policy", self.xmit_hash_policy.map(|word| word.name().to_owned())),
            ("ad_select", self.ad_select.map(|word| word.name().to_owned())),
            ("ad_actor_sys_prio", number(self.ad_actor_sys_prio)),
            ("ad_actor_system", self.ad_actor_system.as_ref().map(ToString::to_string)),
            ("ad_user_port_key", number(self.ad_user_port_key)),
            ("min_links", number(self.min_links)),
            ("all_slaves_active", number(self.all_slaves_active)),
            ("arp_interval", number(self.arp_interval)),
            ("arp_ip_target", self.arp_ip_target.as_ref().map(ToString::to_string)),
            ("arp_validate", self.arp_validate.map(|word| word.name().to_owned())),
            ("arp_all_targets", self.arp_all_targets.map(|word| word.name().to_owned())),
            ("num_grat_arp", number(self.num_grat_arp)),
            ("num_unsol_na", number(self.num_unsol_na)),
            ("peer_notif_delay", number(self.peer_notif_delay)),
            ("packets_per_slave", number(self.packets_per_slave)),
            ("resend_igmp", number(self.resend_igmp)),
            ("tlb_dynamic_lb", number(self.tlb_dynamic_lb)),
            ("lp_interval", number(self.lp_interval)),
            ("use_carrier", number(self.use_carrier)),
        ];
        options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// The policy of a bond, in the order of the kernel's numbers for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("x-numbered" = true))]
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

// The kernel's names.
base::names!(BondMode {
    BalanceRr = "balance-rr",
    ActiveBackup = "active-backup",
    BalanceXor = "balance-xor",
    Broadcast = "broadcast",
    Lacp = "802.3ad",
    BalanceTlb = "balance-tlb",
    BalanceAlb = "balance-alb",
});

/// Words of the bonding driver, in the order of the kernel's numbers for them.
macro_rules! bond_words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $word:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[schemars(extend("x-numbered" = true))]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $text)] $word,)+
        }

        // The kernel's names.
        base::names!($name { $($word = $text),+ });
    };
}

bond_words! {
    /// How often LACP partners talk.
    LacpRate {
        /// Every 30 seconds.
        Slow = "slow",
        /// Every second.
        Fast = "fast",
    }
}
bond_words! {
    /// The fields of a packet that decide its card.
    HashPolicy {
        /// Hardware addresses.
        Layer2 = "layer2",
        /// Addresses and ports.
        Layer3And4 = "layer3+4",
        /// Hardware addresses and addresses.
        Layer2And3 = "layer2+3",
        /// The same of what a tunnel carries.
        Encap2And3 = "encap2+3",
        /// Addresses and ports of what a tunnel carries.
        Encap3And4 = "encap3+4",
        /// VLAN and hardware address of the sender.
        VlanAndSource = "vlan+srcmac",
    }
}
bond_words! {
    /// When a preferred card that has come back is used again.
    PrimaryReselect {
        /// At once.
        Always = "always",
        /// If it is faster than the one in use.
        Better = "better",
        /// When the one in use fails.
        Failure = "failure",
    }
}
bond_words! {
    /// Which group of cards with one partner is used.
    AdSelect {
        /// The one in use until none of its cards works.
        Stable = "stable",
        /// The one with the highest bandwidth.
        Bandwidth = "bandwidth",
        /// The one with most cards.
        Count = "count",
    }
}
bond_words! {
    /// Which ARP packets count as a sign of life.
    ArpValidate {
        /// All packets.
        None = "none",
        /// Only answers on the card in use.
        Active = "active",
        /// Only requests on the cards that wait.
        Backup = "backup",
        /// Only answers, or requests on the cards that wait.
        All = "all",
        /// Only ARP packets.
        Filter = "filter",
        /// Only ARP packets, on the card in use only answers.
        FilterActive = "filter_active",
        /// Only ARP packets, on the cards that wait only requests.
        FilterBackup = "filter_backup",
    }
}
bond_words! {
    /// How many addresses must answer.
    ArpAllTargets {
        /// One of them.
        Any = "any",
        /// Each of them.
        All = "all",
    }
}
