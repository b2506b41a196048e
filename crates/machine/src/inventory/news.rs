//! What has come and gone between two looks at a machine.

use super::{Inventory, Nic};

/// What has come and what has gone; `None` if everything is as before.
#[must_use]
pub fn news(before: &Inventory, now: &Inventory) -> Option<String> {
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
    let told = [("New: ", only(&new, &old)), ("Gone: ", only(&old, &new))];
    let told = told.iter().filter(|(_, names)| !names.is_empty());
    let text = told.map(|(head, names)| format!("{head}{names}.")).collect::<Vec<_>>().join(" ");
    Some(if text.is_empty() { "Disks or network cards have changed.".into() } else { text })
}
