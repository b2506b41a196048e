//! The network cards that a configuration names by their names: with which hardware address each is remembered, and which
//! card of a machine it is.
//!
//! Kernel and firmware name a card after its place, and the name changes with the board, the slot or the firmware. So a
//! node remembers the hardware address of each card that its document names ([`Remembered`], beside the document), and
//! looks for the address first. A card that was replaced has another address, and is found by the name.
//!
//! Everything here is a function of values but [`record`] and [`report::tell`]. The planner makes the first record; the
//! node reads it at each boot, when a document is applied, and for its page. A card that a document gives by its
//! hardware address (`hw_addr`) needs no record and has none.

pub mod record;
pub mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::inventory::Nic;
use model::config::{InstallConfig, Interface};
use model::machine::Mac;

pub use report::Missing;

/// What the management network is called.
pub const MANAGEMENT: &str = "mgmt";

/// The hardware addresses of the cards that a document names, by the names in the document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Remembered(BTreeMap<String, Mac>);

/// One card of a network of the document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted<'a> {
    /// The network: `mgmt`, or the name of one of `install.networks`.
    pub network: &'a str,
    /// The card, as the document gives it.
    pub card: &'a Interface,
}

/// Which card of the machine one of the document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The one with the hardware address that the document gives or the node remembers.
    ByAddress(&'a Nic),
    /// The one of that name: no address is remembered, or no card has it, which is how a replaced card looks.
    ByName(&'a Nic),
    /// None.
    Missing,
}

/// Every card that the document has, network by network.
#[must_use]
pub fn wanted(config: &InstallConfig) -> Vec<Wanted<'_>> {
    let management = config.install.management_interface.iter();
    let management = management.map(|network| (MANAGEMENT, &network.interfaces));
    let further = config.install.networks.iter().map(|network| (&*network.name, &network.interfaces));
    let networks = management.chain(further);
    networks.flat_map(|(network, cards)| cards.iter().map(move |card| Wanted { network, card })).collect()
}

impl Wanted<'_> {
    /// The name by which the document means the card; none where it gives an address.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.card.name.as_deref().filter(|_| self.card.hw_addr.is_none())
    }

    /// The address that the card has by the document or by the record.
    #[must_use]
    pub fn address(&self, remembered: &Remembered) -> Option<Mac> {
        match &self.card.hw_addr {
            Some(address) => address.parse().ok(),
            None => remembered.address(self.card.name.as_deref()?),
        }
    }
}

/// Finds every card of the document among `present`, in the document's order. No card is found twice by its name and by
/// the address of another one.
#[must_use]
pub fn find<'a, 'c>(
    config: &'c InstallConfig,
    remembered: &Remembered,
    present: &'a [Nic],
) -> Vec<(Wanted<'c>, Found<'a>)> {
    let wanted = wanted(config);
    let claimed: Vec<Mac> = wanted.iter().filter_map(|wanted| wanted.address(remembered)).collect();
    let found = |wanted: &Wanted<'c>| {
        let address = wanted.address(remembered);
        if let Some(nic) = address.and_then(|address| with_address(present, address, wanted.name())) {
            return Found::ByAddress(nic);
        }
        let named = present.iter().find(|nic| Some(nic.name.as_str()) == wanted.name());
        let free = named.filter(|nic| address_of(nic).is_none_or(|address| !claimed.contains(&address)));
        free.map_or(Found::Missing, Found::ByName)
    };
    wanted
        .iter()
        .map(|wanted| {
            let found = found(wanted);
            (*wanted, found)
        })
        .collect()
}

/// The card with this address. Where several show it, as a virtual function and the card before it do on some
/// hypervisors, the one of that name comes first.
fn with_address<'a>(present: &'a [Nic], address: Mac, name: Option<&str>) -> Option<&'a Nic> {
    let all = || present.iter().filter(|nic| address_of(nic) == Some(address));
    all().find(|nic| Some(nic.name.as_str()) == name).or_else(|| all().next())
}

fn address_of(nic: &Nic) -> Option<Mac> {
    nic.mac.parse().ok()
}

/// The address by which a card can be known again: its own, and no other card's.
fn lasting_address(nic: &Nic, present: &[Nic]) -> Option<Mac> {
    let address = address_of(nic).filter(|_| !nic.temporary_mac)?;
    let shared = present.iter().filter(|other| address_of(other) == Some(address)).count() > 1;
    (!shared).then_some(address)
}

impl Remembered {
    /// The address of the card that the document calls `name`.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<Mac> {
        self.0.get(name).copied()
    }

    /// Whether no card is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What to remember once a person has said that the node shall have this document: the address of each card as it is
    /// found now. A card that is not there keeps what is known of it, and what the document no longer names is forgotten.
    #[must_use]
    pub fn after(&self, config: &InstallConfig, present: &[Nic]) -> Self {
        let entry = |(wanted, found): (Wanted<'_>, Found<'_>)| {
            let name = wanted.name()?.to_owned();
            let address = match found {
                Found::ByAddress(_) | Found::Missing => self.address(&name),
                Found::ByName(nic) => lasting_address(nic, present),
            };
            Some((name, address?))
        };
        Self(find(config, self, present).into_iter().filter_map(entry).collect())
    }

    /// What to remember after a boot, at which nobody has said anything: cards of which nothing was known are added once
    /// every named card is there, and what is known stays. A node that was installed before there were records gets its
    /// record so.
    #[must_use]
    pub fn completed(&self, config: &InstallConfig, present: &[Nic]) -> Self {
        let found = find(config, self, present);
        if found.iter().any(|(wanted, found)| wanted.name().is_some() && *found == Found::Missing) {
            return self.clone();
        }
        let entry = |(wanted, found): (Wanted<'_>, Found<'_>)| {
            let name = wanted.name()?.to_owned();
            let nic = match found {
                Found::ByAddress(nic) | Found::ByName(nic) => Some(nic),
                Found::Missing => None,
            };
            let address = self.address(&name).or_else(|| lasting_address(nic?, present));
            Some((name, address?))
        };
        Self(found.into_iter().filter_map(entry).collect())
    }
}

/// By what the profiles of a node's network find each card that the document names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cards(BTreeMap<String, Selector>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Selector {
    address: Option<Mac>,
    name: String,
}

impl Cards {
    /// Those of a document on a machine with these cards. With no cards at all (in the initrd, where names are not final,
    /// and below another root), every card has the address that is remembered.
    #[must_use]
    pub fn of(config: &InstallConfig, remembered: &Remembered, present: &[Nic]) -> Self {
        let entry = |(wanted, found): (Wanted<'_>, Found<'_>)| {
            let given = wanted.name()?;
            let remembered = remembered.address(given);
            let selector = match found {
                Found::ByAddress(nic) => Selector {
                    address: remembered.filter(|address| lasting_address(nic, present) == Some(*address)),
                    name: nic.name.clone(),
                },
                Found::ByName(nic) => Selector { address: None, name: nic.name.clone() },
                // It is found as soon as it comes.
                Found::Missing => Selector { address: remembered, name: given.to_owned() },
            };
            Some((given.to_owned(), selector))
        };
        Self(find(config, remembered, present).into_iter().filter_map(entry).collect())
    }

    /// The hardware address by which the card of this name is to be found; none where its name has to do.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<Mac> {
        self.0.get(name)?.address
    }

    /// What the kernel calls the card that the document calls `name`, as far as it is known.
    #[must_use]
    pub fn name<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.get(name).map_or(name, |selector| &selector.name)
    }
}
