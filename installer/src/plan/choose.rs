//! Choosing a disk: the one that is named, or the only possible one. Never a guess.

use std::path::Path;

use super::leftover::is_leftover;
use crate::inventory::{Disk, Holder, Inventory};
use base::failure::{Class, Failure};
use model::config::{DiskClauses, DiskSelector};

/// The key of the configuration that names the disk to install on.
pub(super) const SYSTEM: &str = "install.device";
/// The key that names the disk for data.
pub(super) const DATA: &str = "install.data_disk";

/// The disk to install on. Refuses a disk that is absent, ambiguous, the boot medium, read-only or in use. Without `device` the
/// disk of `data` is excluded, unless it is the only one.
pub(crate) fn system<'a>(
    inventory: &'a Inventory,
    device: Option<&DiskSelector>,
    data: Option<&DiskSelector>,
) -> Result<&'a Disk, Failure> {
    match (device, data) {
        (Some(selector), _) => chosen(inventory, selector, SYSTEM),
        (None, Some(data)) => {
            usable(inventory, only(inventory, Some(chosen(inventory, data, DATA)?))?, SYSTEM)
        }
        (None, None) => usable(inventory, only(inventory, None)?, SYSTEM),
    }
}

/// The disk that the value of `key` selects, with the same refusals.
pub(super) fn chosen<'a>(
    inventory: &'a Inventory,
    selector: &DiskSelector,
    key: &str,
) -> Result<&'a Disk, Failure> {
    let disk = match selector {
        DiskSelector::Path(path) => {
            let disk = named(inventory, Path::new(&**path), key)?
                .ok_or_else(|| refuse(format!("there is no disk {path}")).hint(listing(inventory)))?;
            deliberate(disk, Path::new(&**path), key)?;
            disk
        }
        DiskSelector::Clauses(clauses) => matching(inventory, clauses, key)?,
    };
    usable(inventory, disk, key)
}

/// Refuses a removable disk that is named by a path without its serial number: `/dev/sda` is the stick today and the disk
/// tomorrow, and a port says nothing of what was plugged in there.
pub(super) fn deliberate(disk: &Disk, path: &Path, key: &str) -> Result<(), Failure> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let by_id = path.parent().is_some_and(|parent| parent.ends_with("by-id"));
    // udev replaces characters that it does not allow in names by underscores.
    let names_serial = disk.serial.as_ref().is_some_and(|serial| {
        let known: String = serial.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
        !known.is_empty() && name.contains(&known)
    });
    if !disk.removable || disk.boot_medium || (by_id && names_serial) {
        return Ok(());
    }
    let what = format!("{} is removable, and {} does not say which it is", disk.describe(), path.display());
    Err(refuse(what).hint(match &disk.serial {
        Some(serial) => format!(
            "To use it, name it in {key} by a link in /dev/disk/by-id that has its serial number, {serial}."
        ),
        None => format!("It reports no serial number; take another disk for {key}."),
    }))
}

/// Refuses a disk that must not be written.
pub(super) fn usable<'a>(inventory: &Inventory, disk: &'a Disk, key: &str) -> Result<&'a Disk, Failure> {
    let path = disk.path.display();
    if disk.boot_medium || disk.optical {
        let why = barred(disk).unwrap_or_default();
        return Err(refuse(format!("{path} {why}"))
            .hint(format!("Set {key} to another disk. {}", listing(inventory))));
    }
    if disk.read_only {
        return Err(refuse(format!("{path} is read-only"))
            .hint(format!("Remove the write protection, or set {key} to another disk.")));
    }
    if let Some(holder) = blocking(disk) {
        return Err(refuse(format!("{path} is in use: {holder}"))
            .hint(format!("Unmount it, or set {key} to another disk.")));
    }
    match twins(inventory, disk)[..] {
        [] => Ok(disk),
        ref twins => Err(refuse(format!(
            "{path} and {} report the same world wide name, {}",
            twins.iter().map(|twin| twin.path.display().to_string()).collect::<Vec<_>>().join(", "),
            disk.wwn.as_deref().unwrap_or_default()
        ))
        .hint(format!(
            "They are paths to one disk, and no multipath device holds them: start multipathd and name its device \
             in {key}. If they are not, detach all but one."
        ))),
    }
}

/// What uses the disk and cannot be taken down for an install: a mount, or a device without a known way to stop it.
pub(crate) fn blocking(disk: &Disk) -> Option<&Holder> {
    disk.holders.iter().find(|holder| !is_leftover(holder))
}

/// Why a disk is never written, whatever the configuration says.
fn barred(disk: &Disk) -> Option<&'static str> {
    match disk {
        Disk { boot_medium: true, .. } => Some("holds the medium that this system runs from"),
        Disk { optical: true, .. } => Some("is an optical drive"),
        Disk { read_only: true, .. } => Some("is read-only"),
        _ => None,
    }
}

/// The other disks with its world wide name: what is written on one path, the others do not see.
pub(super) fn twins<'a>(inventory: &'a Inventory, disk: &Disk) -> Vec<&'a Disk> {
    let same = |other: &&Disk| other.name != disk.name && other.wwn.is_some() && other.wwn == disk.wwn;
    // The namespaces of some NVMe controllers share a name.
    inventory.disks.iter().filter(same).filter(|other| other.namespace == disk.namespace).collect()
}

/// The disk of that node or link, if there is one. Refuses a partition.
pub(super) fn named<'a>(
    inventory: &'a Inventory,
    path: &Path,
    key: &str,
) -> Result<Option<&'a Disk>, Failure> {
    if let Some(disk) = inventory.find(path) {
        return Ok(Some(disk));
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

/// The one disk that meets every clause. The error says for each other disk which clause it fails.
fn matching<'a>(inventory: &'a Inventory, clauses: &DiskClauses, key: &str) -> Result<&'a Disk, Failure> {
    let judged: Vec<_> = inventory.disks.iter().map(|disk| (disk, failed(disk, clauses))).collect();
    let met: Vec<_> = judged.iter().filter(|(_, failed)| failed.is_empty()).map(|(disk, _)| *disk).collect();
    match met[..] {
        [disk] => Ok(disk),
        [] => {
            let reasons: Vec<_> = judged
                .iter()
                .map(|(disk, failed)| format!("{}: {}", disk.path.display(), failed.join(", ")))
                .collect();
            let reasons = if reasons.is_empty() { "no disk was found".into() } else { reasons.join("; ") };
            Err(refuse(format!("no disk meets the clauses of {key}"))
                .because(anyhow::anyhow!("{reasons}"))
                .hint(listing(inventory)))
        }
        _ => {
            let descriptions: Vec<_> = met.iter().map(|disk| disk.describe()).collect();
            let hint = match difference(&met) {
                Some(clause) => format!("Add a clause that only one of them meets, such as {clause}."),
                None => ALIKE.into(),
            };
            Err(refuse(format!("{} disks meet the clauses of {key}", met.len()))
                .because(anyhow::anyhow!("{}", descriptions.join("; ")))
                .hint(hint))
        }
    }
}

const ALIKE: &str = "They report nothing that differs: detach all but one.";

/// A clause that the first of several disks meets and no other; preferably one by a property that stays with the disk.
fn difference(disks: &[&Disk]) -> Option<String> {
    type Fact = fn(&Disk) -> Option<String>;
    let facts: [(&str, Fact); 4] = [
        ("serial", |disk| disk.serial.clone()),
        ("wwn", |disk| disk.wwn.clone()),
        ("by_id", |disk| linked(disk, "by-id").into_iter().next()),
        ("by_path", |disk| linked(disk, "by-path").into_iter().next()),
    ];
    facts.iter().find_map(|(clause, fact)| {
        let told: Vec<_> = disks.iter().map(|disk| fact(disk)).collect::<Option<_>>()?;
        let (first, others) = told.split_first()?;
        (!others.contains(first)).then(|| format!("{clause}: {first}"))
    })
}

/// The names of the disk's links in a directory below `/dev/disk`.
fn linked(disk: &Disk, directory: &str) -> Vec<String> {
    let links = disk.links.iter().chain(disk.paths.iter().flat_map(|way| &way.links));
    let links = links.filter(|link| link.parent().is_some_and(|parent| parent.ends_with(directory)));
    links.filter_map(|link| link.file_name()).map(|name| name.to_string_lossy().into_owned()).collect()
}

/// The clauses that the disk does not meet, and why it is no candidate at all.
fn failed(disk: &Disk, clauses: &DiskClauses) -> Vec<String> {
    if let Some(why) = barred(disk) {
        return vec![format!("it {why}")];
    }
    let one = |text: &Option<String>| text.iter().cloned().collect::<Vec<_>>();
    let texts = [
        ("serial", &clauses.serial, one(&disk.serial)),
        ("wwn", &clauses.wwn, one(&disk.wwn)),
        ("model", &clauses.model, one(&disk.model)),
        ("by_id", &clauses.by_id, linked(disk, "by-id")),
        ("by_path", &clauses.by_path, linked(disk, "by-path")),
    ];
    let mut failed = Vec::new();
    for (name, wanted, found) in texts {
        if let Some(wanted) = wanted
            && !found.iter().any(|found| matches(wanted, found) || name == "wwn" && same_wwn(wanted, found))
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
    let by_serial = clauses.serial.as_ref().is_some_and(|serial| !serial.ends_with('*'));
    if failed.is_empty() && disk.removable && !by_serial {
        // A stick that was left in the machine is written only if it is meant beyond doubt.
        failed.push("it is removable, and its serial number is not given".into());
    }
    failed
}

/// The kernel writes `naa.5000c500...` and `eui.0025...` where udev and labels on disks have `0x5000c500...`.
fn same_wwn(wanted: &str, found: &str) -> bool {
    let bare = |text: &str| {
        let text = text.to_ascii_lowercase();
        let prefixes = ["naa.", "eui.", "0x"];
        prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(&text).to_owned()
    };
    matches(&bare(wanted), &bare(found))
}

/// Whether `found` is `wanted`, or begins with it if that ends in `*`.
fn matches(wanted: &str, found: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(beginning) => found.starts_with(beginning),
        None => found == wanted,
    }
}

/// The only possible disk, beside the one for data.
fn only<'a>(inventory: &'a Inventory, data: Option<&Disk>) -> Result<&'a Disk, Failure> {
    // A stick that was left in the machine is written only if it is named.
    let mut candidates: Vec<_> = candidates(inventory).filter(|disk| !disk.removable).collect();
    if let Some(data) = data
        && candidates.len() > 1
    {
        candidates.retain(|disk| disk.name != data.name);
    }
    match candidates[..] {
        [disk] => Ok(disk),
        [] => Err(refuse("this machine has no disk to install on".into())
            .hint(format!("Attach a disk, or name one in install.device. {}", listing(inventory)))),
        _ => {
            let clause =
                difference(&candidates).map_or(ALIKE.into(), |clause| format!("For example {clause}."));
            Err(refuse(format!("{} disks match", candidates.len()))
                .hint(format!("Set install.device. {} {clause}", listing(inventory))))
        }
    }
}

fn candidates(inventory: &Inventory) -> impl Iterator<Item = &Disk> {
    inventory.disks.iter().filter(|disk| barred(disk).is_none())
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

#[cfg(test)]
mod tests;
