//! The proposals of refusals: only disks that the next run accepts.

use std::path::{Path, PathBuf};

use super::judge::{barred, blocking, candidates, failed};
use crate::plan::disk_search::DiskSearch;
use crate::plan::raid_set::RaidSet;
use machine::inventory::{Disk, Inventory, bare_wwn};
use model::config::{DiskClauses, Line};

/// Whether the disk can be named for the key as it is: it may be written, is large enough, needs no further word, and no RAID set
/// loses a member with it.
fn fits(search: DiskSearch<'_>, disk: &Disk) -> bool {
    let alone = RaidSet::of(search.inventory, disk).is_none_or(|set| set.members.len() == 1);
    let free = barred(disk).is_none() && blocking(disk).is_none();
    let one = search.inventory.other_paths(disk).is_empty();
    disk.size >= search.least && !disk.removable && alone && free && one
}

/// The disks that fit, with all that identifies them.
pub(crate) fn listing(search: DiskSearch<'_>) -> String {
    let fitting = candidates(search.inventory).filter(|disk| fits(search, disk));
    let disks: Vec<_> = fitting.map(Disk::describe).collect();
    match disks.is_empty() {
        true => "No other disk fits.".into(),
        false => format!("Disks that fit: {}.", disks.join("; ")),
    }
}

/// A clause with which those given select one of `disks` alone, by a property that stays with the disk. It takes the place of a
/// given one of its name.
pub(super) fn example(search: DiskSearch<'_>, given: &DiskClauses, disks: &[&Disk]) -> Option<String> {
    // A disk that fits comes first; where none does, the reason is told when one is selected.
    let (fitting, others): (Vec<&Disk>, Vec<&Disk>) = disks.iter().partition(|disk| fits(search, disk));
    fitting.into_iter().chain(others).find_map(|disk| {
        let facts = [
            ("serial", disk.own_serial().map(str::to_owned)),
            ("wwn", disk.own_wwn().and(disk.wwn.clone()).map(|wwn| bare_wwn(&wwn))),
            ("by_id", disk.links_in("by-id").into_iter().next()),
            ("by_path", disk.links_in("by-path").into_iter().next()),
        ];
        facts.into_iter().find_map(|(name, value)| {
            let value = value?;
            let clauses = with(given, name, &value)?;
            let only = |found: &&Disk| failed(search.inventory, found, &clauses).is_empty();
            let met: Vec<_> = search.inventory.disks.iter().filter(only).collect();
            let one = met.iter().all(|other| other.name == disk.name || other.is_path_of(disk));
            (one && !met.is_empty()).then(|| format!("{name}: {}", quoted(&value)))
        })
    })
}

/// The clauses with one more, in place of another of its name.
fn with(given: &DiskClauses, name: &str, value: &str) -> Option<DiskClauses> {
    // A star at the end would stand for any text.
    let line: Line = value.parse().ok().filter(|_| !value.ends_with('*'))?;
    let mut clauses = given.clone();
    match name {
        "serial" => clauses.serial = Some(line),
        "wwn" => clauses.wwn = Some(line),
        "by_id" => clauses.by_id = Some(line),
        _ => clauses.by_path = Some(line),
    }
    Some(clauses)
}

/// The text as YAML has it within braces: in quotes where it could be another value.
pub(super) fn quoted(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    let plain =
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && !text.ends_with(':') && text.chars().all(word);
    let value =
        matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off");
    if plain && !value { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// A path that selects this disk whatever else is plugged in: a link with a name of its own, else one by its port, else its node.
#[must_use]
pub fn own_name(inventory: &Inventory, disk: &Disk) -> PathBuf {
    let in_folder = |folder: &str| {
        let names = disk.links_in(folder).into_iter();
        names.map(|name| Path::new("/dev/disk").join(folder).join(name)).collect::<Vec<_>>()
    };
    let serial = disk.own_serial().map(machine::inventory::in_link);
    let by_id = in_folder("by-id");
    let own = by_id.iter().filter(|link| inventory.also_at(link, disk).is_empty());
    let (by_serial, others): (Vec<&PathBuf>, Vec<&PathBuf>) = own.partition(|link| {
        serial.as_ref().is_some_and(|serial| link.to_string_lossy().contains(serial.as_str()))
    });
    let shared_serial = serial.is_some() && by_serial.is_empty();
    let found = by_serial.first().or(others.first().filter(|_| shared_serial));
    found.map_or_else(|| disk.path.clone(), |link| (*link).clone())
}
