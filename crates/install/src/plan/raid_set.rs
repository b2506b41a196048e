//! RAID sets that firmware or a controller keeps on plain disks (Intel VROC and RST, DDF). The installer writes to disks, not to
//! sets, and a member is written only together with all others: the firmware would copy an old member over a new one.

use std::path::Path;

use super::disk_search::{DATA, DiskSearch, MIRROR, SYSTEM, refuse};
use base::failure::Failure;
use base::size::ByteSize;
use machine::inventory::{Disk, HolderKind, Inventory, Signature, SignatureKind};

pub(super) struct RaidSet<'a> {
    kind: SignatureKind,
    name: Option<&'a str>,
    pub(super) members: Vec<&'a Disk>,
}

impl<'a> RaidSet<'a> {
    pub(super) fn of(inventory: &'a Inventory, disk: &'a Disk) -> Option<Self> {
        let own = signature(disk)?;
        let same = |other: &&Disk| signature(other).is_some_and(|found| is_one_set(own, found));
        let members = inventory.disks.iter().filter(same).collect();
        Some(Self { kind: own.kind, name: own.label.as_deref(), members })
    }

    fn describe(&self) -> String {
        let name = self.name.map(|name| format!(" {name:?}")).unwrap_or_default();
        match self.kind {
            SignatureKind::ImsmMember => format!("the RAID set{name} of Intel's firmware (VROC or RST)"),
            _ => format!("the RAID set{name} of a RAID controller (DDF)"),
        }
    }
}

fn signature(disk: &Disk) -> Option<&Signature> {
    let member = [SignatureKind::ImsmMember, SignatureKind::DdfMember];
    disk.signatures.iter().find(|found| member.contains(&found.kind))
}

fn is_one_set(one: &Signature, other: &Signature) -> bool {
    let differ = |one: &Option<String>, other: &Option<String>| matches!((one, other), (Some(one), Some(other)) if one != other);
    one.kind == other.kind && !differ(&one.uuid, &other.uuid) && !differ(&one.label, &other.label)
}

/// Refuses a disk of the install whose RAID set has other members that are neither of the install nor wiped. Returns warnings
/// about members that are alone in this machine. `least`: the least size of a disk for the system.
pub(super) fn refuse_part(
    inventory: &Inventory,
    erased: &[&Disk],
    least: ByteSize,
) -> Result<Vec<String>, Failure> {
    let mut warnings = Vec::new();
    for disk in erased {
        let Some(set) = RaidSet::of(inventory, disk) else { continue };
        let path = disk.path.display();
        let stays = |other: &&&Disk| erased.iter().all(|erased| erased.name != other.name);
        let others: Vec<_> =
            set.members.iter().filter(stays).map(|other| other.path.display().to_string()).collect();
        if others.is_empty() {
            if set.members.len() == 1 {
                let text = format!(
                    "{path} is a member of {}, whose other members are not in this machine.",
                    set.describe()
                );
                warnings.push(text);
            }
            continue;
        }
        let part = if set.members.len() == 2 { "half of" } else { "a member of" };
        let what = format!(
            "{path} is {part} {}; {} {} not erased",
            set.describe(),
            others.join(", "),
            if others.len() == 1 { "is" } else { "are" }
        );
        let mirror = mirror_of(&set.members, least);
        let mirror = mirror.map(|(first, second)| {
            format!("set {SYSTEM} to {first} and {MIRROR} to {second} for a mirror by Linux, or ")
        });
        return Err(refuse(what).hint(format!(
            "Delete the set in the firmware set-up. Or erase all its disks: {}list {} in install.wipe_disks_list.",
            mirror.unwrap_or_default(),
            others.join(", ")
        )));
    }
    Ok(warnings)
}

/// Both members, if Linux can mirror a system of that least size on them.
fn mirror_of(members: &[&Disk], least: ByteSize) -> Option<(String, String)> {
    let [first, second] = members else { return None };
    let large = |disk: &Disk| disk.size >= least && !disk.removable && !disk.read_only && !disk.boot_medium;
    let fits = large(first) && large(second) && first.logical_sector == second.logical_sector;
    fits.then(|| (first.path.display().to_string(), second.path.display().to_string()))
}

/// The refusal of a path that is the name of an array, not of a disk; `None` for other paths. `listing`: the disks that fit.
pub(super) fn refuse_array(search: DiskSearch<'_>, path: &Path, listing: &str) -> Option<Failure> {
    let (inventory, key) = (search.inventory, search.key);
    let over = |disk: &&Disk| {
        let arrays = disk.holders.iter().filter(|holder| holder.kind == HolderKind::Md);
        arrays.filter_map(|holder| holder.device.as_deref()).any(|device| device == path)
    };
    let mut members: Vec<_> = inventory.disks.iter().filter(over).collect();
    if members.is_empty() && !is_array_name(path) {
        return None;
    }
    if members.is_empty() {
        // It does not run; it can only be that of the firmware.
        members = inventory.disks.iter().filter(|disk| signature(disk).is_some()).collect();
    }
    let paths: Vec<_> = members.iter().map(|disk| disk.path.display().to_string()).collect();
    let whose = members.first().and_then(|disk| RaidSet::of(inventory, disk));
    let whose = whose.map_or_else(|| "a Linux RAID array".to_owned(), |set| set.describe());
    let on = if paths.is_empty() { String::new() } else { format!(" on {}", paths.join(" and ")) };
    let what = format!("{} is {whose}{on}, not a disk", path.display());
    let mirror = mirror_of(&members, search.least);
    Some(refuse(what).hint(match (mirror, key) {
        (Some((first, second)), SYSTEM | MIRROR) => format!(
            "Set {SYSTEM} to {first} and {MIRROR} to {second}: the installer erases both and mirrors the system itself."
        ),
        (_, SYSTEM | MIRROR | DATA) => format!("Set {key} to a disk. {listing}"),
        _ => format!("Name its disks in {key}."),
    }))
}

/// Names that md, its udev rules and dmraid give to arrays.
fn is_array_name(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let below = text.strip_prefix("/dev/").unwrap_or(&text);
    let kernel = below.strip_prefix("md").is_some_and(|rest| {
        let digits = rest.trim_start_matches(['_', 'd', '/']);
        rest.starts_with('/') || !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    let starts = ["disk/by-id/md-", "mapper/isw_", "mapper/ddf1_"];
    kernel || starts.iter().any(|start| below.starts_with(start))
}
