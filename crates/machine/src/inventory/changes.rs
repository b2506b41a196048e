//! The difference between two inventories of a machine.

use super::{Inventory, Nic};

/// The disks and cards that are new or gone, in a sentence; `None` if nothing has changed.
#[must_use]
pub fn changes(before: &Inventory, now: &Inventory) -> Option<String> {
    let names = |inventory: &Inventory| -> Vec<String> {
        let card = |nic: &Nic| format!("network card {} {}", nic.name, nic.mac);
        let disks = inventory.disks.iter().map(|disk| format!("disk {}", disk.identify()));
        disks.chain(inventory.nics.iter().map(card)).collect()
    };
    if before == now {
        return None;
    }
    let (old, new) = (names(before), names(now));
    let only = |some: &[String], others: &[String]| {
        some.iter().filter(|name| !others.contains(name)).cloned().collect::<Vec<_>>().join("; ")
    };
    let lists = [("New: ", only(&new, &old)), ("Gone: ", only(&old, &new))];
    let lists = lists.iter().filter(|(_, names)| !names.is_empty());
    let text = lists.map(|(head, names)| format!("{head}{names}.")).collect::<Vec<_>>().join(" ");
    Some(if text.is_empty() { "Disks or network cards have changed.".into() } else { text })
}
