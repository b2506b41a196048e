//! How the profiles of a node's network select their cards.

use std::collections::BTreeMap;

use super::remembered::{FoundCard, RememberedCards, WantedCard, find, lasting_address};
use crate::inventory::Nic;
use model::config::InstallConfig;
use model::machine::Mac;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardSelectors(BTreeMap<String, CardSelector>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct CardSelector {
    address: Option<Mac>,
    name: String,
}

impl CardSelectors {
    /// The selectors of a document on a machine with these cards. Without any cards (in the initrd, where names are not final,
    /// and below another root), every card has the remembered address.
    #[must_use]
    pub fn of(config: &InstallConfig, remembered: &RememberedCards, present: &[Nic]) -> Self {
        let entry = |(wanted, found): (WantedCard<'_>, FoundCard<'_>)| {
            let given = wanted.name()?;
            let remembered = remembered.address(given);
            let selector = match found {
                FoundCard::ByAddress(nic) => CardSelector {
                    address: remembered.filter(|address| lasting_address(nic, present) == Some(*address)),
                    name: nic.name.clone(),
                },
                FoundCard::ByName(nic) => CardSelector { address: None, name: nic.name.clone() },
                // NetworkManager uses the card as soon as it appears.
                FoundCard::Missing => CardSelector { address: remembered, name: given.to_owned() },
            };
            Some((given.to_owned(), selector))
        };
        Self(find(config, remembered, present).into_iter().filter_map(entry).collect())
    }

    /// The hardware address that selects the card of this name; `None` if it is selected by name.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<Mac> {
        self.0.get(name)?.address
    }

    /// The kernel's name of the card that the document calls `name`, if known.
    #[must_use]
    pub fn name<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.get(name).map_or(name, |selector| &selector.name)
    }
}
