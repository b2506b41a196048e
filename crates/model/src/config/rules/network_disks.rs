//! Disks over the network: whose cards they are reached over, and their targets. The addresses of the cards are those of networks, whose
//! rules judge them too.

use document::finding::Finding;

use super::network::views;
use super::shared::repeated;
use crate::config::{InstallConfig, Interface, NetworkDisks, StorageCard};

const GROUP: &str = "install.network_disks";

fn disks(config: &InstallConfig) -> Option<&NetworkDisks> {
    config.install.network_disks.as_ref()
}

fn cards(config: &InstallConfig) -> impl Iterator<Item = (String, &StorageCard)> {
    let cards = disks(config).into_iter().flat_map(|disks| &disks.cards).enumerate();
    cards.map(|(index, card)| (format!("{GROUP}.cards[{index}]"), card))
}

/// A card of a network is a port of its bond. It would lose the address over which the disk is reached.
pub(super) fn cards_have_no_other_use(config: &InstallConfig) -> Vec<Finding> {
    let same = |one: &Interface, other: &Interface| {
        let address = |card: &Interface| card.hw_addr.as_deref().map(str::to_ascii_lowercase);
        match (address(one), address(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one.name.is_some() && one.name == other.name,
        }
    };
    let mut findings = Vec::new();
    let all: Vec<_> = cards(config).collect();
    for (index, (path, card)) in all.iter().enumerate() {
        if all[..index].iter().any(|(_, other)| same(&card.interface, &other.interface)) {
            let message = "the same network card is listed a second time";
            findings.push(Finding::new(format!("{path}.interface"), "interface-twice", message));
        }
        for view in views(config) {
            if view.cards.iter().any(|other| same(&card.interface, other)) {
                let message = format!(
                    "the network card already belongs to {}; disks over the network need a card of their own",
                    view.title()
                );
                findings.push(Finding::new(format!("{path}.interface"), "interface-twice", message));
            }
        }
    }
    findings
}

/// A target has addresses, and each address of a target is given once.
pub(super) fn targets_are_reached(config: &InstallConfig) -> Vec<Finding> {
    let Some(disks) = disks(config) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut places = Vec::new();
    let iscsi = disks.iscsi.iter().enumerate().map(|(index, target)| {
        (format!("iscsi[{index}]"), target.target.as_str(), target.addresses().collect::<Vec<_>>())
    });
    let nvme = disks.nvme.iter().enumerate().map(|(index, target)| {
        (format!("nvme[{index}]"), target.subsystem.as_str(), target.addresses().collect::<Vec<_>>())
    });
    for (place, name, addresses) in iscsi.chain(nvme) {
        let path = format!("{GROUP}.{place}.portals");
        if addresses.is_empty() {
            let message = "a target needs at least one address";
            findings.push(Finding::new(path, "missing-value", message));
            continue;
        }
        for (index, address) in addresses.into_iter().enumerate() {
            places.push((format!("{path}[{index}]"), (name, address)));
        }
    }
    let keys: Vec<_> = places.iter().map(|(_, key)| key).collect();
    findings.extend(repeated(&keys).map(|(later, _)| {
        let message = "this address of the target is given already";
        Finding::new(places[later].0.clone(), "repeated-entry", message)
    }));
    findings
}

/// NVMe subsystems know a machine by its name, which no firmware has.
pub(super) fn nvme_has_a_host(config: &InstallConfig) -> Vec<Finding> {
    let lacks = disks(config).is_some_and(|disks| disks.host.is_none() && !disks.nvme.is_empty());
    let message = "`nvme` needs `host`, the name by which the subsystems know this machine, such as nqn.2026-01.com.example:node-1";
    lacks.then(|| Finding::new(format!("{GROUP}.host"), "missing-value", message)).into_iter().collect()
}

/// What a target gets as a password has to fit on a line of iscsid's configuration.
pub(super) fn passwords_fit(config: &InstallConfig) -> Vec<Finding> {
    let targets = disks(config).into_iter().flat_map(|disks| &disks.iscsi).enumerate();
    let unfit = targets.filter(|(_, target)| {
        target.chap.as_ref().is_some_and(|chap| {
            let text = chap.password.expose();
            text.len() > 255 || text.trim() != text || text.chars().any(char::is_control)
        })
    });
    unfit
        .map(|(index, _)| {
            let message =
                "a password for CHAP has at most 255 bytes on one line, without a space at its begin or end";
            Finding::new(format!("{GROUP}.iscsi[{index}].chap.password"), "invalid-secret-form", message)
        })
        .collect()
}
