//! The network cards that a running node's document names: the node completes the record of their addresses, finds each card
//! under the name that it has on this machine, and shows at every login which are missing.
//!
//! In the initrd, where the document is applied first, cards may still be missing or have other names. So a unit calls [`settle`]
//! again before NetworkManager starts.

use std::path::Path;

use anyhow::Result;

use super::console_text::{for_console, show_again};
use super::network;
use super::paths::{DOCUMENT, below};
use crate::inventory::nics;
use crate::nics::{CardSelectors, FoundCard, MissingCards, RememberedCards, find, missing};
use crate::node_files::write;
use base::command::Runner;
use base::files::Root;
use model::config::{self, InstallConfig};

/// Completes the record of the node at `root`, writes the profiles of its networks for the cards that it has, and shows at logins
/// which are missing. For the unit that runs at every boot; returns lines for its journal.
pub fn settle(root: &Path, runner: &dyn Runner) -> Result<Vec<String>> {
    let document = below(root, DOCUMENT);
    // The boot has applied as much of it, and told of the rest.
    let config = config::load_applicable(&document, &[])?.config;
    let present = nics::scan(&root.join("sys"));
    let mut notes = Vec::new();
    let before = RememberedCards::beside(&document).unwrap_or_else(|error| {
        notes.push(format!("warning: the record of the network cards is made again: {error:#}"));
        RememberedCards::default()
    });
    let remembered = before.completed(&config, &present);
    match remembered.keep_beside(&document) {
        Ok(false) => {}
        Ok(true) => notes.push("the addresses of the network cards are remembered".to_owned()),
        // Without a record the node has its network anyway.
        Err(error) => notes.push(format!("warning: the network cards are not remembered: {error:#}")),
    }
    let found = find(&config, &remembered, &present);
    notes.extend(found.into_iter().filter_map(|(wanted, found)| {
        let name = wanted.name()?;
        match found {
            FoundCard::ByAddress(nic) if nic.name != name => {
                Some(format!("{name} ({}) is {} here", nic.mac, nic.name))
            }
            FoundCard::ByName(nic) if remembered.address(name).is_some() => {
                Some(format!("{name} is another card than before, with the address {}", nic.mac))
            }
            _ => None,
        }
    }));
    let tree = Root::open(root)?;
    for file in network::own_files(&config, &CardSelectors::of(&config, &remembered, &present)) {
        if write(&tree, &file)? {
            notes.push(format!("wrote /{}", file.path));
        }
    }
    notes.extend(show_missing(root, &config, runner)?);
    Ok(notes)
}

/// Shows at every login of the node at `root` which cards of its document are missing, or removes that. Returns the lines.
pub fn show_missing(root: &Path, config: &InstallConfig, runner: &dyn Runner) -> Result<Vec<String>> {
    let missing_cards = MissingCards::on(root, config, &below(root, DOCUMENT));
    if missing::write_issue(root, missing_cards.as_ref(), for_console)? {
        show_again(runner);
    }
    Ok(missing_cards.map(|missing| missing.lines()).unwrap_or_default())
}
