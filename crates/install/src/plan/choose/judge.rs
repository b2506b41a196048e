//! Compares disks with the clauses of a configuration; makes no errors and no proposals.

use std::path::Path;

use crate::plan::leftover::is_leftover;
use machine::inventory::{Disk, Holder, Inventory, bare_wwn};
use model::config::DiskClauses;

/// The holder of the disk that cannot be taken down for an install: a mount, or a device without a known way to stop it.
pub fn blocking(disk: &Disk) -> Option<&Holder> {
    disk.holders.iter().find(|holder| !is_leftover(holder))
}

/// Why a disk is never written, whatever the configuration says.
pub(in crate::plan) fn barred(disk: &Disk) -> Option<&'static str> {
    match disk {
        Disk { boot_medium: true, .. } => Some("holds the medium that this system runs from"),
        Disk { optical: true, .. } => Some("is an optical drive"),
        Disk { read_only: true, .. } => Some("is read-only"),
        _ => None,
    }
}

/// The clauses that the disk does not meet, and why it is no candidate at all.
pub(super) fn failed(inventory: &Inventory, disk: &Disk, clauses: &DiskClauses) -> Vec<String> {
    if let Some(why) = barred(disk) {
        return vec![format!("it {why}")];
    }
    let one = |text: &Option<String>| text.iter().cloned().collect::<Vec<_>>();
    let texts = [
        ("serial", &clauses.serial, one(&disk.serial)),
        ("wwn", &clauses.wwn, one(&disk.wwn)),
        ("model", &clauses.model, one(&disk.model)),
        ("by_id", &clauses.by_id, disk.links_in("by-id")),
        ("by_path", &clauses.by_path, disk.links_in("by-path")),
    ];
    let mut failed = Vec::new();
    for (name, wanted, found) in texts {
        let meets = |wanted: &str| match name {
            "wwn" => found.iter().any(|found| matches(wanted, found) || same_wwn(wanted, found)),
            "by_id" => found.iter().any(|found| matches(wanted, found)) || shares(inventory, disk, wanted),
            _ => found.iter().any(|found| matches(wanted, found)),
        };
        if wanted.as_ref().is_some_and(|wanted| !meets(wanted)) {
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
    let by_serial = clauses.serial.as_ref().is_some_and(|serial| !serial.contains(['*', '?']));
    if failed.is_empty() && disk.removable && !by_serial {
        // A stick that was left in the machine is written only if it is meant beyond doubt.
        failed.push("it is removable, and its serial number is not given".into());
    }
    failed
}

/// Whether the link in `/dev/disk/by-id` of that name leads to another disk now and could lead to this one as well.
fn shares(inventory: &Inventory, disk: &Disk, link: &str) -> bool {
    let path = Path::new("/dev/disk/by-id").join(link);
    let now = inventory.find(&path);
    now.is_some_and(|now| inventory.also_at(&path, now).iter().any(|other| other.name == disk.name))
}

fn same_wwn(wanted: &str, found: &str) -> bool {
    matches(&bare_wwn(wanted), &bare_wwn(found))
}

/// Whether `found` is `wanted`, in which `*` stands for any characters and `?` for one.
pub(super) fn matches(wanted: &str, found: &str) -> bool {
    let (wanted, found): (Vec<char>, Vec<char>) = (wanted.chars().collect(), found.chars().collect());
    // Where each is read, and where the last `*` lets reading begin again.
    let (mut at, mut next, mut again) = (0, 0, None);
    while at < found.len() {
        match wanted.get(next) {
            Some('*') => {
                again = Some((at, next + 1));
                next += 1;
            }
            Some(c) if *c == found[at] || *c == '?' => (at, next) = (at + 1, next + 1),
            _ => {
                let Some((from, rest)) = again else { return false };
                again = Some((from + 1, rest));
                (at, next) = (from + 1, rest);
            }
        }
    }
    wanted[next..].iter().all(|c| *c == '*')
}

/// The disks that may be written.
pub(super) fn candidates(inventory: &Inventory) -> impl Iterator<Item = &Disk> {
    inventory.disks.iter().filter(|disk| barred(disk).is_none())
}
