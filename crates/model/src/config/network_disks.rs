//! Disks that the machine reaches over the network.

use std::net::{Ipv4Addr, SocketAddrV4};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::network::{Interface, Method};
use super::text::{IscsiName, Line, Nqn, Portal};
use document::secret::Secret;

/// The TCP port of iSCSI targets (RFC 7143, section 15).
const ISCSI_PORT: u16 = 3260;
/// The TCP port of NVMe subsystems (NVMe/TCP Transport Specification 1.0, section 3.1).
const NVME_PORT: u16 = 4420;

/// Disks that the machine reaches over the network: the installing system, the initrd of the node and the node itself log in to the
/// iSCSI targets, beside those that the firmware names (iBFT), and connect to the NVMe subsystems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkDisks {
    /// The name of this machine towards iSCSI targets, such as `iqn.2026-01.com.example:node-1`. Needed with `iscsi`, unless the
    /// firmware has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator: Option<IscsiName>,
    /// The network cards for these disks, which no network of the node uses. Needed unless the firmware names one. A card that is
    /// here and in the firmware is set up as here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<StorageCard>,
    /// The iSCSI targets to log in to. Each of their logical units is a disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub iscsi: Vec<IscsiTarget>,
    /// The name of this machine towards NVMe subsystems, such as `nqn.2026-01.com.example:node-1`. Needed with `nvme`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Nqn>,
    /// The NVMe subsystems to connect to over TCP. Each of their namespaces is a disk, for data and not for the system.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nvme: Vec<NvmeSubsystem>,
}

/// A network card for disks that are reached over the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StorageCard {
    /// The network card, by name or by hardware address.
    pub interface: Interface,
    /// Where the address comes from.
    pub method: Method,
    /// Address, for `static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<Ipv4Addr>,
    /// Dotted network mask, for `static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_mask: Option<Ipv4Addr>,
    /// The router to targets outside the card's own network, for `static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// Largest packet, 576 to 9000 bytes; 0 leaves it to the driver.
    pub mtu: u32,
    /// VLAN of the address, 2 to 4094; 0 and 1 mean untagged.
    #[schemars(range(max = 4094))]
    pub vlan_id: u32,
}

/// An iSCSI target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IscsiTarget {
    /// Its name, such as `iqn.2026-01.com.example:array-1`.
    pub target: IscsiName,
    /// Its addresses, each an IPv4 address with or without a port; 3260 unless given. With several of them each is a path to the
    /// same disks.
    pub portals: Vec<Portal>,
    /// Name and password of this machine for the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
}

/// Name and password by which a target knows this machine (CHAP).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Chap {
    /// Name.
    pub user: Line,
    /// Password.
    pub password: Secret,
}

/// An NVMe subsystem that is reached over TCP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NvmeSubsystem {
    /// Its name, such as `nqn.2026-01.com.example:array-1`.
    pub subsystem: Nqn,
    /// Its addresses, each an IPv4 address with or without a port; 4420 unless given. With several of them each is a path to the
    /// same disks.
    pub portals: Vec<Portal>,
}

impl IscsiTarget {
    /// Addresses and ports, as [`IscsiTarget::portals`] has them.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddrV4> {
        self.portals.iter().map(|portal| portal.address(ISCSI_PORT))
    }
}

impl NvmeSubsystem {
    /// Addresses and ports, as [`NvmeSubsystem::portals`] has them.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddrV4> {
        self.portals.iter().map(|portal| portal.address(NVME_PORT))
    }
}

impl Portal {
    /// Address and port, which is `usual` unless the text names one. The format has checked both.
    fn address(&self, usual: u16) -> SocketAddrV4 {
        let text = self.as_str();
        let bare = || Some(SocketAddrV4::new(text.parse().ok()?, usual));
        let found = text.parse().ok().or_else(bare);
        found.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, usual))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_has_the_port_of_its_protocol_unless_it_names_another() {
        let portals = || ["192.0.2.9", "192.0.2.9:3261"].map(|text| text.parse().unwrap()).to_vec();
        let (target, subsystem) = ("iqn.2026-01.com.example:a", "nqn.2026-01.com.example:a");
        let iscsi = IscsiTarget { target: target.parse().unwrap(), portals: portals(), chap: None };
        let nvme = NvmeSubsystem { subsystem: subsystem.parse().unwrap(), portals: portals() };
        let texts =
            |addresses: Vec<SocketAddrV4>| addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(iscsi.addresses().collect()), ["192.0.2.9:3260", "192.0.2.9:3261"]);
        assert_eq!(texts(nvme.addresses().collect()), ["192.0.2.9:4420", "192.0.2.9:3261"]);
    }
}
