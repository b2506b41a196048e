//! Which disk: the one that is named, or the only one there can be. Never a guess.

use std::path::Path;

use crate::failure::{Class, Failure};
use crate::inventory::{Disk, Inventory};

/// The disk to install on. Refuses what is absent, ambiguous, the boot medium, read-only or in use.
pub(super) fn choose<'a>(inventory: &'a Inventory, device: Option<&Path>) -> Result<&'a Disk, Failure> {
    let disk = match device {
        Some(path) => named(inventory, path)?,
        None => only(inventory)?,
    };
    let path = disk.path.display();
    if disk.boot_medium {
        return Err(refuse(format!("{path} holds the medium that this system runs from"))
            .hint(format!("Set install.device to another disk. {}", listing(inventory))));
    }
    if disk.optical {
        return Err(refuse(format!("{path} is an optical drive")));
    }
    if disk.read_only {
        return Err(refuse(format!("{path} is read-only"))
            .hint("Remove the write protection, or set install.device to another disk."));
    }
    if let Some(reason) = disk.in_use.first() {
        let more = disk.in_use.len() - 1;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        return Err(refuse(format!("{path} is in use: {reason}{more}"))
            .hint("Unmount it, or set install.device to another disk."));
    }
    Ok(disk)
}

fn named<'a>(inventory: &'a Inventory, path: &Path) -> Result<&'a Disk, Failure> {
    if let Some(disk) = inventory.find(path) {
        return Ok(disk);
    }
    let parent = inventory.disks.iter().find(|disk| {
        disk.partitions.iter().any(|part| part.path == path || part.links.iter().any(|link| link == path))
    });
    Err(match parent {
        Some(disk) => refuse(format!("{} is a partition, not a disk", path.display()))
            .hint(format!("Set install.device to the whole disk, {}.", disk.path.display())),
        None => refuse(format!("there is no disk {}", path.display())).hint(listing(inventory)),
    })
}

fn only(inventory: &Inventory) -> Result<&Disk, Failure> {
    // A stick that somebody left in the machine is written only when it is named.
    let candidates: Vec<_> = candidates(inventory).filter(|disk| !disk.removable).collect();
    match candidates[..] {
        [disk] => Ok(disk),
        [] => Err(refuse("this machine has no disk to install on".into())
            .hint(format!("Attach a disk, or name one in install.device. {}", listing(inventory)))),
        _ => Err(refuse(format!("{} disks could be meant", candidates.len()))
            .hint(format!("Set install.device. {}", listing(inventory)))),
    }
}

fn candidates(inventory: &Inventory) -> impl Iterator<Item = &Disk> {
    inventory.disks.iter().filter(|disk| !disk.optical && !disk.boot_medium && !disk.read_only)
}

fn listing(inventory: &Inventory) -> String {
    let disks: Vec<_> = candidates(inventory).map(Disk::describe).collect();
    match disks.is_empty() {
        true => "No other disk was found.".into(),
        false => format!("Disks found: {}.", disks.join("; ")),
    }
}

fn refuse(what: String) -> Failure {
    Failure::new(Class::Hardware, what)
}
