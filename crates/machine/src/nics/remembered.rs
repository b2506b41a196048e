//! The hardware addresses that a node remembers, and which card of a machine each card of its document is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::inventory::Nic;
use model::config::{InstallConfig, Interface};
use model::machine::Mac;

pub const MANAGEMENT: &str = "mgmt";

/// The hardware addresses of the cards that a document names, by the names in the document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RememberedCards(BTreeMap<String, Mac>);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WantedCard<'a> {
    /// `mgmt`, or the name of one of `install.networks`.
    pub network: &'a str,
    pub card: &'a Interface,
}

/// The card of the machine that a card of the document stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundCard<'a> {
    /// The one with the hardware address that the document gives or the node remembers.
    ByAddress(&'a Nic),
    /// The one of that name: no address is remembered, or no card has it, as with a replaced card.
    ByName(&'a Nic),
    Missing,
}

/// Every card of the document, network by network.
#[must_use]
pub fn wanted(config: &InstallConfig) -> Vec<WantedCard<'_>> {
    let management = config.install.management_interface.iter();
    let management = management.map(|network| (MANAGEMENT, &network.interfaces));
    let further = config.install.networks.iter().map(|network| (&*network.name, &network.interfaces));
    let networks = management.chain(further);
    networks.flat_map(|(network, cards)| cards.iter().map(move |card| WantedCard { network, card })).collect()
}

impl WantedCard<'_> {
    /// The card's name in the document; `None` if that gives an address.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.card.name.as_deref().filter(|_| self.card.hw_addr.is_none())
    }

    /// The card's address, from the document or from the record.
    #[must_use]
    pub fn address(&self, remembered: &RememberedCards) -> Option<Mac> {
        match &self.card.hw_addr {
            Some(address) => address.parse().ok(),
            None => remembered.address(self.card.name.as_deref()?),
        }
    }
}

/// Finds every card of the document among `present`, in the document's order. No card is found twice, by its name and by the
/// address of another one.
#[must_use]
pub fn find<'a, 'c>(
    config: &'c InstallConfig,
    remembered: &RememberedCards,
    present: &'a [Nic],
) -> Vec<(WantedCard<'c>, FoundCard<'a>)> {
    let wanted = wanted(config);
    let claimed: Vec<Mac> = wanted.iter().filter_map(|wanted| wanted.address(remembered)).collect();
    let found = |wanted: &WantedCard<'c>| {
        let address = wanted.address(remembered);
        if let Some(nic) = address.and_then(|address| with_address(present, address, wanted.name())) {
            return FoundCard::ByAddress(nic);
        }
        let named = present.iter().find(|nic| Some(nic.name.as_str()) == wanted.name());
        let free = named.filter(|nic| address_of(nic).is_none_or(|address| !claimed.contains(&address)));
        free.map_or(FoundCard::Missing, FoundCard::ByName)
    };
    wanted
        .iter()
        .map(|wanted| {
            let found = found(wanted);
            (*wanted, found)
        })
        .collect()
}

/// The card with this address. If several have it, as a virtual function and the card before it do on some hypervisors, the one
/// of that name comes first.
fn with_address<'a>(present: &'a [Nic], address: Mac, name: Option<&str>) -> Option<&'a Nic> {
    let all = || present.iter().filter(|nic| address_of(nic) == Some(address));
    all().find(|nic| Some(nic.name.as_str()) == name).or_else(|| all().next())
}

fn address_of(nic: &Nic) -> Option<Mac> {
    nic.mac.parse().ok()
}

/// The address by which a card can be recognized again: its own, and no other card's.
pub(super) fn lasting_address(nic: &Nic, present: &[Nic]) -> Option<Mac> {
    let address = address_of(nic).filter(|_| !nic.temporary_mac)?;
    let shared = present.iter().filter(|other| address_of(other) == Some(address)).count() > 1;
    (!shared).then_some(address)
}

impl RememberedCards {
    /// The address of the card that the document calls `name`.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<Mac> {
        self.0.get(name).copied()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The record after a person has chosen this document for the node: the address of each card as it is found now. The address
    /// of a missing card is kept, and cards that the document no longer names are dropped.
    #[must_use]
    pub fn after(&self, config: &InstallConfig, present: &[Nic]) -> Self {
        let entry = |(wanted, found): (WantedCard<'_>, FoundCard<'_>)| {
            let name = wanted.name()?.to_owned();
            let address = match found {
                FoundCard::ByAddress(_) | FoundCard::Missing => self.address(&name),
                FoundCard::ByName(nic) => lasting_address(nic, present),
            };
            Some((name, address?))
        };
        Self(find(config, self, present).into_iter().filter_map(entry).collect())
    }

    /// The record after a boot, at which nobody has chosen anything: unknown cards are added once every named card is there, and
    /// known ones stay. So a node that was installed before there were records gets its record.
    #[must_use]
    pub fn completed(&self, config: &InstallConfig, present: &[Nic]) -> Self {
        let found = find(config, self, present);
        if found.iter().any(|(wanted, found)| wanted.name().is_some() && *found == FoundCard::Missing) {
            return self.clone();
        }
        let entry = |(wanted, found): (WantedCard<'_>, FoundCard<'_>)| {
            let name = wanted.name()?.to_owned();
            let nic = match found {
                FoundCard::ByAddress(nic) | FoundCard::ByName(nic) => Some(nic),
                FoundCard::Missing => None,
            };
            let address = self.address(&name).or_else(|| lasting_address(nic?, present));
            Some((name, address?))
        };
        Self(found.into_iter().filter_map(entry).collect())
    }
}
