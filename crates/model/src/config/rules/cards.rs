//! Network cards: that they are named, and each used once.

use super::network::{NetworkView, views, views_with_disks};
use crate::config::{InstallConfig, Interface};
use document::finding::Finding;

/// The size of packets in bytes that every network carries, and the default of drivers.
pub(crate) const USUAL_PACKETS: u32 = 1500;

/// Each network has cards, and each card a name or a hardware address.
pub(super) fn cards_are_named(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for view in views_with_disks(config) {
        if view.cards.is_empty() {
            let message = "the network card is not named";
            let finding = Finding::new(view.path("interfaces"), "missing-value", message);
            findings.push(finding.suggest("interfaces: [{ name: ens3 }]"));
        }
        for (index, card) in view.cards.iter().enumerate() {
            if card.name.is_none() && card.hw_addr.is_none() {
                let message = "a network card needs `name` or `hw_addr`";
                findings.push(Finding::new(view.card_path(index), "missing-value", message));
            }
        }
    }
    findings
}

/// A card is the port of one bond, and once. One that is named here and given by its address there is not seen.
pub(super) fn each_card_once(config: &InstallConfig) -> Vec<Finding> {
    let views = views(config);
    let cards = |view: &NetworkView<'_>| -> Vec<(String, String)> {
        let place = |(index, card): (usize, &Interface)| {
            identity(card).map(|identity| (view.card_path(index), identity))
        };
        view.cards.iter().enumerate().filter_map(place).collect()
    };
    let all: Vec<_> = views
        .iter()
        .enumerate()
        .flat_map(|(network, view)| cards(view).into_iter().map(move |(path, card)| (network, path, card)))
        .collect();
    let identities: Vec<_> = all.iter().map(|(_, _, card)| card).collect();
    let mut findings = Vec::new();
    for (later, earlier) in super::shared::repeated(&identities) {
        let ((network, path, _), (other, ..)) = (&all[later], &all[earlier]);
        let message = if other == network {
            "the same network card is listed a second time".to_owned()
        } else {
            format!("the network card already belongs to {}", views[*other].title())
        };
        findings.push(Finding::new(path, "interface-twice", message));
    }
    findings
}

/// The identifier by which the node finds a card: its address, or else its name.
fn identity(card: &Interface) -> Option<String> {
    let address = card.hw_addr.as_deref().map(str::to_ascii_lowercase);
    address.or_else(|| card.name.as_deref().map(str::to_owned))
}

/// The largest packet is one that IPv4 allows and that cards can send.
pub(super) fn packet_size(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for view in views_with_disks(config) {
        match view.mtu {
            0 | 1280..=USUAL_PACKETS => {}
            // No pods are there, and large packets are usual.
            576..=9000 if view.is_for_disks() => {}
            576..1280 => {
                let message =
                    "packets this small leave pods, whose packets travel inside others, hardly any room";
                findings.push(Finding::warning(view.path("mtu"), "unusual-mtu", message));
            }
            1501..=9000 => {
                let message = "packets of more than 1500 bytes need the same size on every node and switch";
                findings.push(Finding::warning(view.path("mtu"), "unusual-mtu", message));
            }
            _ => {
                let message = "the largest packet has 576 to 9000 bytes; 0 leaves it to the driver";
                findings.push(Finding::new(view.path("mtu"), "mtu-out-of-range", message));
            }
        }
    }
    findings
}

/// The longest name of a device (the kernel's `IFNAMSIZ` less its zero).
const DEVICE_NAME: usize = 15;

/// Names of further networks make names of devices.
pub(super) fn names_are_unique(config: &InstallConfig) -> Vec<Finding> {
    let views = views(config);
    let names: Vec<_> = views.iter().map(|view| view.name().unwrap_or("mgmt")).collect();
    let mut findings: Vec<_> = super::shared::repeated(&names)
        .map(|(later, earlier)| {
            let message = format!("{} has this name already", views[earlier].title());
            Finding::new(views[later].path("name"), "duplicate-name", message)
        })
        .collect();
    if names.first().is_some_and(|_| !views[0].is_management()) {
        let reserved = views.iter().filter(|view| view.name() == Some("mgmt"));
        findings.extend(reserved.map(|view| {
            let message = "the management network has this name";
            Finding::new(view.path("name"), "duplicate-name", message)
        }));
    }
    for view in views.iter().filter(|view| view.vlan > 1) {
        let device = format!("{}-br.{}", view.name().unwrap_or("mgmt"), view.vlan);
        if device.len() > DEVICE_NAME {
            let message =
                format!("the device of the VLAN would be called {device}, and 15 characters are the most");
            findings.push(Finding::new(view.path("name"), "name-too-long", message));
        }
    }
    findings
}
