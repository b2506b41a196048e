//! Choosing a disk: the one that is named, or the only possible one. Never a guess.

mod hints;
mod judge;

use std::path::Path;

use super::disk_search::{DATA, DiskSearch, SYSTEM, refuse};
use super::raid_set;
use base::failure::Failure;
use base::size::ByteSize;
use hints::example;
pub(super) use hints::listing;
pub use hints::own_name;
pub(super) use judge::barred;
pub use judge::blocking;
use judge::{candidates, failed};
use machine::inventory::{Disk, Inventory, bare_wwn, in_link};
use model::config::{DiskClauses, DiskSelector, Install};

/// The disk to install on, where its least size does not matter. See [`system`].
pub fn system_disk<'a>(
    inventory: &'a Inventory,
    device: Option<&DiskSelector>,
    data: Option<&DiskSelector>,
) -> Result<&'a Disk, Failure> {
    system(DiskSearch { inventory, key: SYSTEM, least: ByteSize::default() }, device, data)
}

/// The disk to install on. Refuses a disk that is absent, ambiguous, the boot medium, read-only or in use. Without `device` the
/// disk of `data` is excluded, unless it is the only one.
pub(super) fn system<'a>(
    search: DiskSearch<'a>,
    device: Option<&DiskSelector>,
    data: Option<&DiskSelector>,
) -> Result<&'a Disk, Failure> {
    match (device, data) {
        (Some(selector), _) => chosen(search, selector),
        (None, Some(data)) => {
            let data = chosen(DiskSearch { key: DATA, ..search }, data)?;
            usable(search, only(search, Some(data))?)
        }
        (None, None) => usable(search, only(search, None)?),
    }
}

/// The disk that a selector means, with the same refusals.
pub(super) fn chosen<'a>(search: DiskSearch<'a>, selector: &DiskSelector) -> Result<&'a Disk, Failure> {
    let disk = match selector {
        DiskSelector::Path(path) => {
            let disk = named(search, Path::new(&**path))?
                .ok_or_else(|| refuse(format!("there is no disk {path}")).hint(another(search)))?;
            deliberate(search, disk, Path::new(&**path))?;
            disk
        }
        DiskSelector::Clauses(clauses) => matching(search, clauses)?,
    };
    usable(search, disk)
}

/// Refuses a removable disk that is named by a path without its serial number: `/dev/sda` is the stick today and the disk
/// tomorrow, and a port says nothing of what was plugged in there.
pub(super) fn deliberate(search: DiskSearch<'_>, disk: &Disk, path: &Path) -> Result<(), Failure> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let by_id = path.parent().is_some_and(|parent| parent.ends_with("by-id"));
    let names_serial = disk.own_serial().is_some_and(|serial| name.contains(&in_link(serial)));
    if !disk.removable || disk.boot_medium || (by_id && names_serial) {
        return Ok(());
    }
    let key = search.key;
    let what = format!("{} is removable, and {} does not say which it is", disk.describe(), path.display());
    Err(refuse(what).hint(match disk.own_serial() {
        Some(serial) => format!(
            "To use it, name it in {key} by a link in /dev/disk/by-id that has its serial number, {serial}."
        ),
        None => format!("It reports no serial number of its own; take another disk for {key}."),
    }))
}

/// Refuses a disk that must not be written.
pub(super) fn usable<'a>(search: DiskSearch<'_>, disk: &'a Disk) -> Result<&'a Disk, Failure> {
    let path = disk.path.display();
    if disk.boot_medium || disk.optical {
        let why = barred(disk).unwrap_or_default();
        return Err(refuse(format!("{path} {why}")).hint(another(search)));
    }
    if disk.read_only {
        return Err(refuse(format!("{path} is read-only"))
            .hint(format!("Remove the write protection, or choose another disk. {}", another(search))));
    }
    if let Some(holder) = blocking(disk) {
        return Err(refuse(format!("{path} is in use: {holder}"))
            .hint(format!("Unmount it, or choose another disk. {}", another(search))));
    }
    match search.inventory.other_paths(disk)[..] {
        [] => Ok(disk),
        ref others => Err(several_paths(search, disk, others)),
    }
}

/// The disks that the configuration names and the machine lacks, as it names them. Without a name, any disk will do.
pub fn absent_disks(install: &Install, inventory: &Inventory) -> Vec<String> {
    let here = |selector: &DiskSelector| match selector {
        DiskSelector::Path(path) => has_path(inventory, Path::new(&**path)),
        DiskSelector::Clauses(clauses) => {
            inventory.disks.iter().any(|disk| failed(inventory, disk, clauses).is_empty())
        }
    };
    let selectors = [&install.device, &install.mirror, &install.data_disk].into_iter().flatten();
    let listed = install.wipe_disks_list.iter().filter(|path| !has_path(inventory, Path::new(&***path)));
    let selected = selectors.filter(|selector| !here(selector)).map(ToString::to_string);
    let mut absent: Vec<_> = selected.chain(listed.map(ToString::to_string)).collect();
    if install.device.is_none() && candidates(inventory).next().is_none() {
        absent.push("a disk".to_owned());
    }
    absent
}

/// Whether the path is that of a disk, a partition, or an array of this machine: a wrong one is not waited for.
fn has_path(inventory: &Inventory, path: &Path) -> bool {
    let part = |disk: &Disk| {
        disk.partitions.iter().any(|part| part.path == path || part.links.iter().any(|link| link == path))
    };
    let held = |disk: &Disk| disk.holders.iter().any(|holder| holder.device.as_deref() == Some(path));
    inventory.find(path).is_some() || inventory.disks.iter().any(|disk| part(disk) || held(disk))
}

fn another(search: DiskSearch<'_>) -> String {
    format!("Set {} to another disk. {}", search.key, listing(search))
}

/// The refusal of a disk that several paths lead to: a write on one of them is not seen on the others.
fn several_paths(search: DiskSearch<'_>, disk: &Disk, others: &[&Disk]) -> Failure {
    let paths: Vec<_> = [disk].iter().chain(others).map(|disk| disk.path.display().to_string()).collect();
    let (wwn, key) = (disk.wwn.as_deref().unwrap_or_default(), search.key);
    let what = format!("{} are paths to one disk, {wwn}, and no multipath map holds them", paths.join(", "));
    refuse(what).hint(format!(
        "Start multipathd, then name the map: {key}: {{wwn: {}}} selects it. \
         A live system without multipathd needs a medium with the package multipath-tools in base.debian.include. \
         If they are several disks that report one name, detach all but one.",
        hints::quoted(&bare_wwn(wwn))
    ))
}

/// The disk of that node or link, if there is one. Refuses a partition, a RAID set, and a name that another disk could have too.
pub(super) fn named<'a>(search: DiskSearch<'a>, path: &Path) -> Result<Option<&'a Disk>, Failure> {
    let (inventory, key) = (search.inventory, search.key);
    if let Some(disk) = inventory.find(path) {
        let mut others = inventory.also_at(path, disk);
        // Linux numbers the namespaces of a controller as they answer at a start. A node is enough where no name stays.
        if path == disk.path && own_name(inventory, disk) != disk.path {
            others.extend(inventory.other_namespaces(disk));
        }
        return match others[..] {
            [] => Ok(Some(disk)),
            ref others => Err(shared_name(search, path, disk, others)),
        };
    }
    if let Some(failure) = raid_set::refuse_array(search, path, &listing(search)) {
        return Err(failure);
    }
    let parent = inventory.disks.iter().find(|disk| {
        disk.partitions.iter().any(|part| part.path == path || part.links.iter().any(|link| link == path))
    });
    match parent {
        Some(disk) => Err(refuse(format!("{} is a partition, not a disk", path.display()))
            .hint(format!("Set {key} to the whole disk, {}.", disk.path.display()))),
        None => Ok(None),
    }
}

/// The refusal of a name that does not say which of several disks it means.
fn shared_name(search: DiskSearch<'_>, path: &Path, disk: &Disk, others: &[&Disk]) -> Failure {
    let all: Vec<&Disk> = [disk].into_iter().chain(others.iter().copied()).collect();
    let paths: Vec<_> = all.iter().map(|disk| disk.path.display().to_string()).collect();
    let names: Vec<_> = all
        .iter()
        .map(|disk| format!("{} ({})", own_name(search.inventory, disk).display(), disk.size))
        .collect();
    let what = format!("{} is ambiguous: it can be {}", path.display(), paths.join(" or "));
    refuse(what).hint(format!("Set {} to the full name: {}.", search.key, names.join(" or ")))
}

/// The one disk that meets every clause. The error says for each other disk which clause it fails.
fn matching<'a>(search: DiskSearch<'a>, clauses: &DiskClauses) -> Result<&'a Disk, Failure> {
    let (inventory, key) = (search.inventory, search.key);
    let judged: Vec<_> =
        inventory.disks.iter().map(|disk| (disk, failed(inventory, disk, clauses))).collect();
    let met: Vec<_> = judged.iter().filter(|(_, failed)| failed.is_empty()).map(|(disk, _)| *disk).collect();
    match met[..] {
        [disk] => Ok(disk),
        // The refusal of several paths is about all of them.
        [disk, ref others @ ..] if others.iter().all(|other| other.is_path_of(disk)) => Ok(disk),
        [] => {
            let reasons: Vec<_> = judged
                .iter()
                .map(|(disk, failed)| format!("{}: {}", disk.path.display(), failed.join(", ")))
                .collect();
            let reasons = if reasons.is_empty() { "no disk was found".into() } else { reasons.join("; ") };
            Err(refuse(format!("no disk meets the clauses of {key}"))
                .because(anyhow::anyhow!("{reasons}"))
                .hint(another(search)))
        }
        _ => {
            let descriptions: Vec<_> = met.iter().map(|disk| disk.describe()).collect();
            let hint = match example(search, clauses, &met) {
                Some(example) => format!("Add a clause that only one of them meets, such as {example}."),
                None => ALIKE.into(),
            };
            Err(refuse(format!("{} disks meet the clauses of {key}", met.len()))
                .because(anyhow::anyhow!("{}", descriptions.join("; ")))
                .hint(hint))
        }
    }
}

const ALIKE: &str = "They report nothing that differs: detach all but one.";

/// The only possible disk, beside the one for data.
fn only<'a>(search: DiskSearch<'a>, data: Option<&Disk>) -> Result<&'a Disk, Failure> {
    // A stick that was left in the machine is written only if it is named.
    let mut candidates: Vec<_> = candidates(search.inventory).filter(|disk| !disk.removable).collect();
    if let Some(data) = data
        && candidates.len() > 1
    {
        candidates.retain(|disk| disk.name != data.name);
    }
    match candidates[..] {
        [disk] => Ok(disk),
        [disk, ref others @ ..] if others.iter().all(|other| other.is_path_of(disk)) => Ok(disk),
        [] => Err(refuse("this machine has no disk to install on".into())
            .hint(format!("Attach a disk.{}", removable(search)))),
        _ => {
            let example = match example(search, &DiskClauses::default(), &candidates) {
                Some(example) => format!("For example {SYSTEM}: {{{example}}}."),
                None => ALIKE.into(),
            };
            Err(refuse(format!("{} disks match", candidates.len()))
                .hint(format!("Set {SYSTEM}. {} {example}", listing(search))))
        }
    }
}

/// How a removable disk is named, if there is one.
fn removable(search: DiskSearch<'_>) -> String {
    let sticks: Vec<_> = candidates(search.inventory).filter(|disk| disk.removable).collect();
    let described: Vec<_> = sticks.iter().map(|disk| disk.describe()).collect();
    match example(search, &DiskClauses::default(), &sticks) {
        Some(example) => format!(
            " A removable one is taken only by its serial number, such as {SYSTEM}: {{{example}}}. Found: {}.",
            described.join("; ")
        ),
        None if sticks.is_empty() => String::new(),
        None => format!(" Removable ones without a serial number are not taken: {}.", described.join("; ")),
    }
}

#[cfg(test)]
mod tests;
