//! Which disk: the one that is named, or the only one there can be. Never a guess.

use std::path::Path;

use crate::config::{DiskClauses, DiskSelector};
use crate::failure::{Class, Failure};
use crate::inventory::{Disk, Inventory};

/// The disk to install on. Refuses what is absent, ambiguous, the boot medium, read-only or in use.
pub(crate) fn choose<'a>(
    inventory: &'a Inventory,
    device: Option<&DiskSelector>,
) -> Result<&'a Disk, Failure> {
    let disk = match device {
        Some(DiskSelector::Path(path)) => named(inventory, Path::new(&**path))?,
        Some(DiskSelector::Clauses(clauses)) => matching(inventory, clauses)?,
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

/// The one disk that meets every clause. For each other disk the error says which clause it fails.
fn matching<'a>(inventory: &'a Inventory, clauses: &DiskClauses) -> Result<&'a Disk, Failure> {
    let judged: Vec<_> = candidates(inventory).map(|disk| (disk, failed(disk, clauses))).collect();
    let met: Vec<_> = judged.iter().filter(|(_, failed)| failed.is_empty()).map(|(disk, _)| *disk).collect();
    match met[..] {
        // A stick that somebody left in the machine is written only when its serial number is given.
        [disk] if disk.removable && clauses.serial.is_none() => {
            Err(refuse(format!("{} is removable", disk.describe()))
                .hint("To install on a removable disk, give its serial number in install.device."))
        }
        [disk] => Ok(disk),
        [] => {
            let told: Vec<_> = judged
                .iter()
                .map(|(disk, failed)| format!("{}: {}", disk.path.display(), failed.join(", ")))
                .collect();
            let told = if told.is_empty() { "no disk was found".into() } else { told.join("; ") };
            Err(refuse("no disk meets the clauses of install.device".into())
                .because(anyhow::anyhow!("{told}"))
                .hint(listing(inventory)))
        }
        _ => {
            let told: Vec<_> = met.iter().map(|disk| disk.describe()).collect();
            Err(refuse(format!("{} disks meet the clauses of install.device", met.len()))
                .because(anyhow::anyhow!("{}", told.join("; ")))
                .hint("Add a clause that only one of them meets, such as serial."))
        }
    }
}

/// What of `clauses` the disk does not meet.
fn failed(disk: &Disk, clauses: &DiskClauses) -> Vec<String> {
    let link = |directory: &str| {
        let names =
            disk.links.iter().filter(|link| link.parent().is_some_and(|parent| parent.ends_with(directory)));
        names
            .filter_map(|link| link.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
    };
    let one = |text: &Option<String>| text.iter().cloned().collect::<Vec<_>>();
    let texts = [
        ("serial", &clauses.serial, one(&disk.serial)),
        ("wwn", &clauses.wwn, one(&disk.wwn)),
        ("model", &clauses.model, one(&disk.model)),
        ("by_id", &clauses.by_id, link("by-id")),
        ("by_path", &clauses.by_path, link("by-path")),
    ];
    let mut failed = Vec::new();
    for (name, wanted, found) in texts {
        if let Some(wanted) = wanted
            && !found.iter().any(|found| matches(wanted, found))
        {
            let found = if found.is_empty() { "none".into() } else { found.join(" and ") };
            failed.push(format!("its {name} is {found}"));
        }
    }
    if clauses.size.is_some_and(|size| !size.holds(disk.size)) {
        failed.push(format!("its size is {}", disk.size));
    }
    if clauses.transport.is_some_and(|transport| transport != disk.transport) {
        failed.push(format!("its transport is {}", disk.transport));
    }
    if clauses.rotational.is_some_and(|rotational| rotational != disk.rotational) {
        failed.push(if disk.rotational { "it is rotational".into() } else { "it is not rotational".into() });
    }
    failed
}

/// Whether `found` is `wanted`, or begins with it where it ends in `*`.
fn matches(wanted: &str, found: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(beginning) => found.starts_with(beginning),
        None => found == wanted,
    }
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
