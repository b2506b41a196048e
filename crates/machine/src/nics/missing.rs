//! Messages about a network card of the node document that is not in the machine.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::remembered::{FoundCard, RememberedCards, find};
use crate::inventory::{Nic, nics};
use base::files;
use model::config::InstallConfig;

/// The text above every login while a card is missing (agetty(8)): the OS image has a link to it in `/etc/issue.d`, before that
/// of the stages. Relative to the root.
pub const ISSUE: &str = "run/nqrust/cards.issue";

/// Cards of the document that are not in the machine, and those that are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingCards {
    pub cards: Vec<MissingCard>,
    pub present: Vec<PresentCard>,
}

/// A card of the document that is not in the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingCard {
    /// Its name in the document; `None` if that gives only an address.
    pub name: Option<String>,
    /// Its hardware address, from the document or remembered; `None` if it is unknown.
    pub address: Option<String>,
    /// The network that it belongs to: `mgmt`, or one of `install.networks`.
    pub network: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PresentCard {
    pub name: String,
    pub address: String,
    /// The kernel module, if known.
    pub driver: Option<String>,
    /// Whether a cable is connected; unknown while the card is down.
    pub link: Option<bool>,
}

impl MissingCards {
    /// The cards of `config` that are missing among `present`; `None` if there are none.
    #[must_use]
    pub fn of(config: &InstallConfig, remembered: &RememberedCards, present: &[Nic]) -> Option<Self> {
        let found = find(config, remembered, present).into_iter();
        let cards: Vec<_> = found
            .filter(|(_, found)| *found == FoundCard::Missing)
            .map(|(wanted, _)| MissingCard {
                name: wanted.card.name.as_deref().map(str::to_owned),
                address: wanted.address(remembered).map(|address| address.to_string()),
                network: wanted.network.to_owned(),
            })
            .collect();
        let card = |nic: &Nic| PresentCard {
            name: nic.name.clone(),
            address: nic.mac.clone(),
            driver: nic.driver.clone(),
            link: nic.carrier,
        };
        (!cards.is_empty()).then(|| Self { cards, present: present.iter().map(card).collect() })
    }

    /// The missing cards on the running system at `root` for the document at `document`. `None` also if the kernel shows no
    /// network devices at all: then this is no running system.
    #[must_use]
    pub fn on(root: &Path, config: &InstallConfig, document: &Path) -> Option<Self> {
        let sys = root.join("sys");
        if !sys.join("class/net").is_dir() {
            return None;
        }
        Self::of(config, &RememberedCards::beside(document).unwrap_or_default(), &nics::scan(&sys))
    }

    /// The missing cards of one network, as a clause; `None` if there are none.
    #[must_use]
    pub fn of_network(&self, network: &str) -> Option<String> {
        let cards = self.cards.iter().filter(|card| card.network == network);
        let cards: Vec<_> = cards.map(MissingCard::describe).collect();
        (!cards.is_empty()).then(|| format!("{} not in this machine: {}", is(cards.len()), cards.join(", ")))
    }

    /// The missing cards, one a line.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.cards.iter().map(|card| format!("{} of network {}", card.describe(), card.network)).collect()
    }

    /// The present cards, one a line.
    #[must_use]
    pub fn there(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.present.iter().map(PresentCard::describe).collect();
        if lines.is_empty() {
            lines.push("none that the kernel has a driver for".to_owned());
        }
        lines
    }

    /// The advice for people.
    #[must_use]
    pub fn next() -> &'static str {
        "Put the card back, or name a present one: key N of `sudo installer console`, or /oem/node.yaml and then: \
         sudo installer apply"
    }

    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let head = if self.cards.len() == 1 { "NETWORK CARD MISSING" } else { "NETWORK CARDS MISSING" };
        let missing = self.missing().into_iter().map(|line| format!("{head}: {line}"));
        let present = self.there().into_iter().map(|line| format!("Card in this machine: {line}"));
        missing.chain(present).chain([Self::next().to_owned()]).collect()
    }
}

fn is(count: usize) -> &'static str {
    if count == 1 { "a network card is" } else { "network cards are" }
}

impl MissingCard {
    fn describe(&self) -> String {
        match (&self.name, &self.address) {
            (Some(name), Some(address)) => format!("{name} ({address})"),
            (Some(name), None) => name.clone(),
            (None, Some(address)) => address.clone(),
            (None, None) => "a card without a name".to_owned(),
        }
    }
}

impl PresentCard {
    fn describe(&self) -> String {
        let driver = self.driver.as_deref().unwrap_or("driver not known");
        let link = match self.link {
            Some(true) => "link",
            Some(false) => "no link",
            None => "link not known: the card is down",
        };
        format!("{} {} ({driver}, {link})", self.name, self.address)
    }
}

/// Writes [`ISSUE`] below `root`, or removes it if no card is missing. Returns whether it changed: then the consoles have to read
/// it again.
pub fn write_issue(
    root: &Path,
    missing: Option<&MissingCards>,
    shown: impl Fn(&[String]) -> String,
) -> Result<bool> {
    let path = root.join(ISSUE);
    let before = fs::read(&path).ok();
    let Some(missing) = missing else {
        return match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("removing {}", path.display())),
        };
    };
    let text = shown(&missing.lines());
    if before.as_deref() == Some(text.as_bytes()) {
        return Ok(false);
    }
    files::write_atomically(&path, text.as_bytes(), 0o644)?;
    Ok(true)
}
