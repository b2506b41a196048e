//! The verdict on a disk.

use std::io;

use crate::bios::FirstSectorVerdict;
use crate::bytes::{Bytes, hash};
use crate::{bios, ext4, fat, gpt};

pub type Hash = [u8; 32];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every byte is as before the install.
    OldState,
    /// Neither legacy firmware nor UEFI finds anything to start.
    NotBootable,
    /// It starts, and nothing is missing.
    Complete,
    /// It starts, and this is missing or wrong. That must never happen.
    Half(String),
}

/// The expected content of an installed disk.
#[derive(Clone, Debug)]
pub struct Expected {
    /// In bytes.
    pub sector: u64,
    /// In the order of the disk.
    pub parts: Vec<Part>,
    /// GRUB for legacy firmware; none if the disk cannot have it.
    pub boot: Option<BootCode>,
    /// The length and the hash of the OS image, which every slot has at its start.
    pub image: (u64, Hash),
    pub slots: Vec<Slot>,
    /// All files of the EFI system partition, in lower case.
    pub esp: Vec<File>,
    pub systems: Vec<System>,
}

#[derive(Clone, Debug)]
pub struct Part {
    /// In the partition table.
    pub name: String,
    /// In bytes.
    pub start: u64,
    /// In bytes.
    pub size: u64,
}

/// GRUB's files on the medium.
#[derive(Clone, Debug)]
pub struct BootCode {
    /// `boot.img`.
    pub boot: Vec<u8>,
    /// `core.img`, which goes to the partition `bios`.
    pub core: Vec<u8>,
}

/// A partition with an OS image and a boot volume.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Of its partition.
    pub name: String,
    /// The hash tree of the OS image: where it begins, in bytes from the start of the disk, its length and its hash.
    pub tree: (u64, (u64, Hash)),
    /// Where the boot volume begins, in bytes from the start of the disk.
    pub boot: u64,
    /// All files of the boot volume, in lower case.
    pub files: Vec<File>,
}

#[derive(Clone, Debug)]
pub struct File {
    /// Without a leading slash.
    pub path: String,
    /// Length and hash, if they are known before the install.
    pub content: Option<(u64, Hash)>,
}

#[derive(Clone, Debug)]
pub struct System {
    /// The name of its partition.
    pub part: String,
    pub label: String,
    /// Files that it has to contain; it may have others.
    pub files: Vec<File>,
}

/// Judges a disk that is not in its old state.
pub fn judge(disk: &dyn Bytes, expected: &Expected) -> io::Result<Verdict> {
    if !starts(disk, expected) {
        let hangs = bios::first(disk) == FirstSectorVerdict::Hangs && has_our_table(disk, expected);
        return Ok(if hangs { Verdict::Half(HANGS.into()) } else { Verdict::NotBootable });
    }
    Ok(missing(disk, expected)?.map_or(Verdict::Complete, Verdict::Half))
}

/// Judges the slot that begins at `start`, as GRUB finds it: without the files that it starts from it is not bootable, whatever else is
/// there.
pub fn judge_slot(disk: &dyn Bytes, start: u64, slot: &Slot, image: (u64, Hash)) -> io::Result<Verdict> {
    let files = fat::Volume::open(disk, slot.boot).and_then(|volume| volume.files().ok());
    let names: Vec<_> = files.iter().flatten().map(|(path, _)| path.as_str()).collect();
    if !["slot.cfg", "vmlinuz", "initrd"].iter().all(|name| names.contains(name)) {
        return Ok(Verdict::NotBootable);
    }
    Ok(missing_in_slot(disk, start, slot, image)?.map_or(Verdict::Complete, Verdict::Half))
}

/// A defect by which legacy firmware never gets to the next device.
const HANGS: &str = "legacy firmware runs into zeros";

/// True if either copy of the partition table is that of the install. What an old table left in the first sector does
/// not matter.
fn has_our_table(disk: &dyn Bytes, expected: &Expected) -> bool {
    gpt::tables(disk, expected.sector).iter().flatten().any(|table| is_ours(table, expected))
}

fn is_ours(table: &gpt::Table, expected: &Expected) -> bool {
    let same = |(entry, part): (&gpt::Entry, &Part)| {
        entry.name == part.name && entry.start == part.start && entry.size == part.size
    };
    table.entries.len() == expected.parts.len() && table.entries.iter().zip(&expected.parts).all(same)
}

/// True if any firmware would start code from the disk. UEFI starts from any FAT volume: one that either copy of the
/// table names as the EFI system partition, one in an MBR partition, one on the whole disk. Legacy firmware starts the
/// code in the first sector; the GRUB of this install stops there if it finds no FAT volume.
fn starts(disk: &dyn Bytes, expected: &Expected) -> bool {
    let tables = gpt::tables(disk, expected.sector);
    let entries = tables.iter().flatten().flat_map(|table| &table.entries);
    let volumes = entries.filter(|entry| entry.is_esp()).map(|entry| entry.start);
    let mut volumes = volumes.chain(gpt::mbr(disk, expected.sector)).chain([0]);
    let waits = expected.boot.as_ref().is_some_and(|boot| bios::is_ours(disk, boot));
    volumes.any(|start| fat::is_fat(disk, start))
        || (bios::first(disk) == FirstSectorVerdict::Starts && !waits)
}

/// The missing part of an installed disk; none if it is complete.
fn missing(disk: &dyn Bytes, expected: &Expected) -> io::Result<Option<String>> {
    let [Some(primary), Some(backup)] = gpt::tables(disk, expected.sector) else {
        return Ok(Some("a copy of the partition table is not valid".into()));
    };
    if primary != backup {
        return Ok(Some("the copies of the partition table differ".into()));
    }
    if !is_ours(&primary, expected)
        || !primary.entries.iter().any(|entry| entry.is_esp() && entry.name == "esp")
    {
        return Ok(Some(format!("the table has other partitions: {:?}", primary.entries)));
    }
    let start = |name: &str| {
        let part = expected.parts.iter().find(|part| part.name == name);
        part.map(|part| part.start).ok_or_else(|| io::Error::other(format!("no partition {name}")))
    };
    if let Some(boot) = &expected.boot
        && let Some(what) = bios::missing(disk, boot, start("bios")?)
    {
        return Ok(Some(what.into()));
    }
    for slot in &expected.slots {
        if let Some(what) = missing_in_slot(disk, start(&slot.name)?, slot, expected.image)? {
            return Ok(Some(what));
        }
    }
    if let Some(what) = missing_boot_files(disk, start("esp")?, &expected.esp, "the EFI system partition")? {
        return Ok(Some(what));
    }
    for system in &expected.systems {
        if let Some(what) = missing_files(disk, start(&system.part)?, system) {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

fn missing_in_slot(
    disk: &dyn Bytes,
    start: u64,
    slot: &Slot,
    image: (u64, Hash),
) -> io::Result<Option<String>> {
    let (length, digest) = image;
    if hash(disk, start, length)? != digest {
        return Ok(Some(format!("the OS image on {} is not what it should be", slot.name)));
    }
    let (tree, (length, digest)) = slot.tree;
    if hash(disk, tree, length)? != digest {
        return Ok(Some(format!("the hash tree on {} is not what it should be", slot.name)));
    }
    missing_boot_files(disk, slot.boot, &slot.files, &format!("the boot volume of {}", slot.name))
}

fn missing_boot_files(
    disk: &dyn Bytes,
    start: u64,
    files: &[File],
    name: &str,
) -> io::Result<Option<String>> {
    let Some(volume) = fat::Volume::open(disk, start) else {
        return Ok(Some(format!("{name} is not FAT32")));
    };
    let found = match volume.files() {
        Ok(found) => found,
        Err(error) => return Ok(Some(format!("{name}: {error}"))),
    };
    let wrong = files.iter().find(|file| {
        let found = found.get(&file.path);
        found.is_none() || file.content.is_some_and(|content| found != Some(&content))
    });
    Ok(wrong.map(|file| format!("{} on {name}", file.path)))
}

fn missing_files(disk: &dyn Bytes, start: u64, system: &System) -> Option<String> {
    let part = &system.part;
    let Some(volume) = ext4::Volume::open(disk, start).filter(|volume| volume.label == system.label) else {
        return Some(format!("no file system {} on {part}", system.label));
    };
    system.files.iter().find_map(|file| match (volume.hash(&file.path), file.content) {
        (Err(error), _) => Some(format!("{} on {part}: {error}", file.path)),
        (Ok(found), Some(content)) if found != content => Some(format!("{} on {part} differs", file.path)),
        _ => None,
    })
}
