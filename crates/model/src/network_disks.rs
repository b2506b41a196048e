//! How a node reaches its disks over the network: what an install puts beside the boot loader, and the initrd of the node reads.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use crate::config::Chap;
pub use crate::disk_protocol::DiskProtocol;
use crate::machine::Mac;

/// The file in the initrd, from its root. It may have passwords.
pub const ACCESS_FILE: &str = "etc/nqrust/network-disks.json";

/// The disks of a machine over the network, with everything that it takes to reach them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkDiskAccess {
    /// The name of this machine towards iSCSI targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// The name of this machine towards NVMe subsystems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub cards: Vec<CardSetup>,
    /// The targets that the system of the node is on; its recovery system needs no other.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub system_targets: BTreeSet<String>,
    pub targets: Vec<TargetPortal>,
}

/// A network card, and the address that it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardSetup {
    pub mac: Mac,
    pub address: CardAddress,
    /// The router to targets outside the card's own network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// In bytes; none leaves it to the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CardAddress {
    Dhcp,
    Static { ip: Ipv4Addr, prefix: u8 },
}

/// One way to an iSCSI target or an NVMe subsystem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetPortal {
    pub protocol: DiskProtocol,
    /// The name of the target or of the subsystem.
    pub target: String,
    pub portal: SocketAddrV4,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<Chap>,
}

impl NetworkDiskAccess {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// This for a node whose system and data are on these disks, each with the name of its target; no other target is left. A node
    /// would wait at its start for one that it does not need.
    #[must_use]
    pub fn for_node(mut self, system: &[(DiskProtocol, &str)], data: &[(DiskProtocol, &str)]) -> Self {
        self.targets.retain(|way| {
            let name = (way.protocol, way.target.as_str());
            system.contains(&name) || data.contains(&name)
        });
        self.system_targets = system.iter().map(|(_, target)| (*target).to_owned()).collect();
        self
    }

    /// This for the recovery system of a node.
    #[must_use]
    pub fn for_recovery(mut self) -> Self {
        let Self { system_targets, targets, .. } = &mut self;
        targets.retain(|way| system_targets.contains(&way.target));
        self
    }

    /// Whether any of the disks is reached by `protocol`.
    #[must_use]
    pub fn uses(&self, protocol: DiskProtocol) -> bool {
        self.targets.iter().any(|way| way.protocol == protocol)
    }

    /// This and what only `other` has. Of the same card, or the same way to a target, this one's setup counts.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.initiator = self.initiator.or(other.initiator);
        self.host = self.host.or(other.host);
        for card in other.cards {
            if self.cards.iter().all(|known| known.mac != card.mac) {
                self.cards.push(card);
            }
        }
        for found in other.targets {
            let same = |known: &TargetPortal| known.leads_to(&found.target, found.portal, found.protocol);
            if !self.targets.iter().any(same) {
                self.targets.push(found);
            }
        }
        self
    }
}

impl TargetPortal {
    /// Whether it is the way to `target` at `portal` by `protocol`.
    #[must_use]
    pub fn leads_to(&self, target: &str, portal: SocketAddrV4, protocol: DiskProtocol) -> bool {
        self.target == target && self.portal == portal && self.protocol == protocol
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn access(mac: &str, password: Option<&str>) -> NetworkDiskAccess {
        let chap = password
            .map(|password| Chap { user: "node-1".parse().unwrap(), password: Secret::new(password) });
        NetworkDiskAccess {
            initiator: None,
            host: None,
            cards: vec![CardSetup {
                mac: mac.parse().unwrap(),
                address: CardAddress::Static { ip: Ipv4Addr::new(192, 0, 2, 7), prefix: 24 },
                gateway: None,
                vlan: None,
                mtu: None,
            }],
            system_targets: BTreeSet::new(),
            targets: vec![TargetPortal {
                protocol: DiskProtocol::Iscsi,
                target: "iqn.2026-01.com.example:a".into(),
                portal: "192.0.2.9:3260".parse().unwrap(),
                chap,
            }],
        }
    }

    #[test]
    fn the_document_counts_before_the_firmware_and_both_have_their_cards() {
        let document = access("52:54:00:00:00:01", Some("hunter2"));
        let firmware = NetworkDiskAccess {
            initiator: Some("iqn.2026-01.com.example:b".into()),
            ..access("52:54:00:00:00:02", None)
        };
        let both = document.clone().with(firmware.clone());
        assert_eq!(both.targets, document.targets);
        assert_eq!(both.cards.len(), 2);
        assert_eq!(both.initiator, firmware.initiator);
        assert!(NetworkDiskAccess::default().with(firmware.clone()) == firmware && !firmware.is_empty());
    }

    #[test]
    fn a_node_reaches_the_targets_of_its_disks_and_its_recovery_system_those_of_its_system() {
        let mut all = access("52:54:00:00:00:01", None);
        for (protocol, target) in [
            (DiskProtocol::Iscsi, "iqn.2026-01.com.example:b"),
            (DiskProtocol::Iscsi, "iqn.2026-01.com.example:unused"),
            (DiskProtocol::NvmeTcp, "nqn.2026-01.com.example:c"),
        ] {
            let way = TargetPortal { protocol, target: target.into(), ..all.targets[0].clone() };
            all.targets.push(way);
        }
        let names = |access: &NetworkDiskAccess| {
            access
                .targets
                .iter()
                .map(|way| way.target.rsplit(':').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let (a, b) = ("iqn.2026-01.com.example:a", "iqn.2026-01.com.example:b");
        let node = all.clone().for_node(
            &[(DiskProtocol::Iscsi, a), (DiskProtocol::Iscsi, b)],
            &[(DiskProtocol::NvmeTcp, "nqn.2026-01.com.example:c")],
        );
        assert_eq!(names(&node), ["a", "b", "c"]);
        assert_eq!(names(&node.for_recovery()), ["a", "b"]);
        let data = all.for_node(&[], &[(DiskProtocol::Iscsi, b)]);
        assert_eq!(names(&data), ["b"]);
        assert!(data.for_recovery().is_empty());
    }

    #[test]
    fn what_the_install_writes_the_initrd_reads() {
        let access = access("52:54:00:00:00:01", Some("a \"b\" \\ c"));
        let text = serde_json::to_string(&access).unwrap();
        assert_eq!(serde_json::from_str::<NetworkDiskAccess>(&text).unwrap(), access);
        assert!(!format!("{access:?}").contains("a \\\"b"), "the password shows");
    }
}
