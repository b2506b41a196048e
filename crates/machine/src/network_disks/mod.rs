//! Disks over the network: reading how they are reached, and reaching them. The live system and the initrd of a node do the same.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`firmware`] | the iBFT, by which firmware and iPXE name targets and the network card to them |
//! | [`cards`] | the files for the network cards, which networkd sets up and NetworkManager leaves alone |
//! | [`login`] | one login to an iSCSI target with open-iscsi |
//! | [`fabrics`] | one connection to an NVMe subsystem over TCP, which the kernel makes |
//! | [`connect`] | cards and logins, tried again until the disks are there |
//! | [`sessions`] | what the kernel says of the logins |

pub mod cards;
pub mod connect;
mod fabrics;
pub mod firmware;
mod login;
pub mod sessions;

pub use login::record_logins;

use std::collections::BTreeSet;

use anyhow::anyhow;
use thiserror::Error;

use crate::inventory::Nic;
use base::failure::{Class, Failure};
use model::config::rules::prefix_length;
use model::config::{InstallConfig, Interface, Method, NetworkDisks, StorageCard};
use model::machine::Mac;
use model::network_disks::{CardAddress, CardSetup, DiskProtocol, NetworkDiskAccess, TargetPortal};

/// A storage system that answers and does not let this machine in, in words that follow its name. Without a change there or of the document
/// it will do so again.
#[derive(Clone, Copy, Debug, Error)]
#[error("{0}")]
struct Refusal(&'static str);

/// How the disks of the document and of the firmware are reached by the machine with these cards; empty if there are none.
///
/// # Errors
/// [`Class::Hardware`] if the machine lacks a card of the document; [`Class::Invalid`] if the targets are named without a card, or
/// without the name of this machine.
pub fn access(
    config: &InstallConfig,
    firmware: NetworkDiskAccess,
    nics: &[Nic],
) -> Result<NetworkDiskAccess, Failure> {
    use DiskProtocol::{Iscsi, NvmeTcp};
    let all = document_access(config, nics)?.with(firmware);
    let lacks = |what: &str, hint: &str| {
        Failure::new(Class::Invalid, format!("install.network_disks names targets and no {what}"))
            .because(anyhow!("the firmware of this machine has none either (iBFT)"))
            .hint(hint)
    };
    if all.is_empty() {
        return Ok(NetworkDiskAccess::default());
    }
    if all.cards.is_empty() {
        return Err(lacks("network card", "Name the card in install.network_disks.cards."));
    }
    if all.uses(Iscsi) && all.initiator.is_none() {
        let hint =
            "Give the name that the iSCSI targets know this machine by in install.network_disks.initiator.";
        return Err(lacks("name of this machine", hint));
    }
    if all.uses(NvmeTcp) && all.host.is_none() {
        let hint =
            "Give the name that the NVMe subsystems know this machine by in install.network_disks.host.";
        return Err(lacks("name of this machine", hint));
    }
    Ok(all)
}

/// The part of the document, which an install puts beside the boot loader.
///
/// # Errors
/// [`Class::Hardware`] if the machine lacks a card of the document.
pub fn document_access(config: &InstallConfig, nics: &[Nic]) -> Result<NetworkDiskAccess, Failure> {
    let named = config.install.network_disks.as_ref();
    Ok(named.map(|disks| of_document(disks, nics)).transpose()?.unwrap_or_default())
}

fn of_document(disks: &NetworkDisks, nics: &[Nic]) -> Result<NetworkDiskAccess, Failure> {
    let cards = disks.cards.iter().map(|card| setup(card, nics)).collect::<Result<_, _>>()?;
    let iscsi = disks.iscsi.iter().flat_map(|target| {
        target.addresses().map(|portal| TargetPortal {
            protocol: DiskProtocol::Iscsi,
            target: target.target.to_string(),
            portal,
            chap: target.chap.clone(),
        })
    });
    let nvme = disks.nvme.iter().flat_map(|target| {
        target.addresses().map(|portal| TargetPortal {
            protocol: DiskProtocol::NvmeTcp,
            target: target.subsystem.to_string(),
            portal,
            chap: None,
        })
    });
    Ok(NetworkDiskAccess {
        initiator: disks.initiator.as_ref().map(ToString::to_string),
        host: disks.host.as_ref().map(ToString::to_string),
        cards,
        system_targets: BTreeSet::new(),
        targets: iscsi.chain(nvme).collect(),
    })
}

/// The card by its hardware address: the initrd may know it by another name.
fn setup(card: &StorageCard, nics: &[Nic]) -> Result<CardSetup, Failure> {
    let found = nics.iter().find(|nic| nic.is(&card.interface)).and_then(|nic| nic.mac.parse().ok());
    let mac: Mac = found.ok_or_else(|| {
        let there: Vec<_> = nics.iter().map(|nic| format!("{} {}", nic.name, nic.mac)).collect();
        let what = format!("this machine has no network card {}", card_words(&card.interface));
        Failure::new(Class::Hardware, what)
            .because(anyhow!("it has {}", if there.is_empty() { "none".into() } else { there.join(", ") }))
            .hint("Name another one in install.network_disks.cards.")
    })?;
    let given = (card.ip, card.subnet_mask.and_then(prefix_length));
    let address = match (card.method, given) {
        (Method::Static, (Some(ip), Some(prefix))) => CardAddress::Static { ip, prefix },
        _ => CardAddress::Dhcp,
    };
    let vlan = u16::try_from(card.vlan_id).ok().filter(|id| *id > 1);
    let mtu = Some(card.mtu).filter(|mtu| *mtu > 0);
    Ok(CardSetup { mac, address, gateway: card.gateway, vlan, mtu })
}

fn card_words(card: &Interface) -> String {
    let words = [card.name.as_deref(), card.hw_addr.as_deref()];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The first card of the document's networks that is one of `cards`, over which disks are reached. As a part of a bond it would lose
/// the address, and the node its disk.
#[must_use]
pub fn moved_card<'a>(config: &InstallConfig, cards: &[CardSetup], nics: &'a [Nic]) -> Option<&'a Nic> {
    let management = config.install.management_interface.iter().flat_map(|network| &network.interfaces);
    let mut named = management.chain(config.install.networks.iter().flat_map(|network| &network.interfaces));
    let of_disks = |nic: &&Nic| cards.iter().any(|card| nic.mac.parse() == Ok(card.mac));
    named.find_map(|interface| nics.iter().filter(|nic| nic.is(interface)).find(of_disks))
}

/// Fails if a network of the document would take a card over which disks are reached.
///
/// # Errors
/// [`Class::Invalid`], with the card.
pub fn require_unmoved(config: &InstallConfig, cards: &[CardSetup], nics: &[Nic]) -> Result<(), Failure> {
    match moved_card(config, cards, nics) {
        None => Ok(()),
        Some(nic) => Err(Failure::new(
            Class::Invalid,
            format!("a network of the configuration names {} {}", nic.name, nic.mac),
        )
        .because(anyhow!("disks of this machine are reached over that card, which would lose its address"))
        .hint(MOVED_HINT)),
    }
}

/// What to do about a network that would take such a card.
pub const MOVED_HINT: &str =
    "Name another network card in install.management_interface and install.networks.";

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;
    use model::config::parse;

    const DOCUMENT: &str = "install:\n  management_interface: {interfaces: [{name: ens3}]}\n  network_disks:\n    \
        initiator: iqn.2026-01.com.example:node-1\n    \
        cards: [{interface: {name: ens4}, method: static, ip: 192.0.2.7, subnet_mask: 255.255.255.0, vlan_id: 7, mtu: 9000}]\n    \
        iscsi: [{target: 'iqn.2026-01.com.example:a', portals: [192.0.2.9, '192.0.2.10:3261'], chap: {user: u, password: correct horse}}]\n    \
        host: nqn.2026-01.com.example:node-1\n    \
        nvme: [{subsystem: 'nqn.2026-01.com.example:a', portals: [192.0.2.9]}]\n";

    fn nics() -> Vec<Nic> {
        let nic = |name: &str, last: &str| Nic {
            name: name.into(),
            mac: format!("52:54:00:00:00:{last}"),
            carrier: None,
            speed: None,
            driver: None,
            temporary_mac: false,
        };
        vec![nic("ens3", "03"), nic("ens4", "04"), nic("ens5", "05")]
    }

    fn firmware(mac: &str) -> NetworkDiskAccess {
        let mac = mac.parse().unwrap();
        NetworkDiskAccess {
            initiator: Some("iqn.2026-01.com.example:firmware".into()),
            host: None,
            cards: vec![CardSetup { mac, address: CardAddress::Dhcp, gateway: None, vlan: None, mtu: None }],
            system_targets: BTreeSet::new(),
            targets: vec![TargetPortal {
                protocol: DiskProtocol::Iscsi,
                target: "iqn.2026-01.com.example:b".into(),
                portal: "192.0.2.9:3260".parse().unwrap(),
                chap: None,
            }],
        }
    }

    #[test]
    fn each_address_of_a_target_is_a_way_to_it_and_the_card_is_known_by_its_hardware_address() {
        let config = parse(DOCUMENT, "f").unwrap();
        let access = access(&config, firmware("52:54:00:00:00:05"), &nics()).unwrap();
        let ways: Vec<_> =
            access.targets.iter().map(|way| format!("{} {}", way.protocol, way.portal)).collect();
        assert_eq!(
            ways,
            [
                "iSCSI 192.0.2.9:3260",
                "iSCSI 192.0.2.10:3261",
                "NVMe over TCP 192.0.2.9:4420",
                "iSCSI 192.0.2.9:3260"
            ]
        );
        assert_eq!(access.host.as_deref(), Some("nqn.2026-01.com.example:node-1"));
        assert_eq!(access.initiator.as_deref(), Some("iqn.2026-01.com.example:node-1"));
        let [document, firmware] = &access.cards[..] else { panic!("{:?}", access.cards) };
        assert_eq!(
            (document.mac.to_string().as_str(), document.vlan, document.mtu),
            ("52:54:00:00:00:04", Some(7), Some(9000))
        );
        assert_eq!(firmware.address, CardAddress::Dhcp);
    }

    #[test]
    fn a_machine_without_disks_over_the_network_needs_nothing() {
        let config = parse("os: {hostname: a}", "f").unwrap();
        assert!(access(&config, NetworkDiskAccess::default(), &[]).unwrap().is_empty());
    }

    #[test]
    fn what_is_missing_is_told() {
        let target = "iscsi: [{target: 'iqn.2026-01.com.example:a', portals: [192.0.2.9]}]";
        for (given, part) in [
            (format!("initiator: 'iqn.2026-01.com.example:n', {target}"), "and no network card"),
            (format!("cards: [{{interface: {{name: ens4}}}}], {target}"), "and no name of this machine"),
            (format!("cards: [{{interface: {{name: ens9}}}}], {target}"), "no network card ens9"),
        ] {
            let text = format!("install: {{network_disks: {{{given}}}}}");
            let config = parse(&text, "f").unwrap();
            let error = access(&config, NetworkDiskAccess::default(), &nics()).unwrap_err();
            let text = render(&error.into());
            assert!(text.contains(part), "{text}");
        }
        let mut config = parse(DOCUMENT, "f").unwrap();
        config.install.network_disks.as_mut().unwrap().host = None;
        let error = access(&config, NetworkDiskAccess::default(), &nics()).unwrap_err();
        assert!(render(&error.into()).contains("in install.network_disks.host"));
        // The firmware has both.
        let config = parse(&format!("install: {{network_disks: {{{target}}}}}"), "f").unwrap();
        assert_eq!(access(&config, firmware("52:54:00:00:00:05"), &nics()).unwrap().targets.len(), 2);
    }

    #[test]
    fn a_network_that_would_take_the_card_of_a_disk_is_refused() {
        let config = parse("install: {management_interface: {interfaces: [{name: ens3}]}}", "f").unwrap();
        let cards = |mac: &str| firmware(mac).cards;
        require_unmoved(&config, &cards("52:54:00:00:00:05"), &nics()).unwrap();
        let error = require_unmoved(&config, &cards("52:54:00:00:00:03"), &nics()).unwrap_err();
        let text = render(&error.into());
        assert!(
            text.contains("names ens3 52:54:00:00:00:03") && text.contains("would lose its address"),
            "{text}"
        );
    }
}
