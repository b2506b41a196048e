//! The entries of a partition table that the kernel does not show.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::disk::{Disk, FoundEntry, FoundPartition};
use super::sysfs::node;
use formats::partition_table::{self, PartitionEntry};

/// Gives each partition of `disk` its entry in the GUID partition table on `device`. If the kernel shows none, because the first
/// copy of the table is damaged, they come from the second copy.
pub(super) fn complete(disk: &mut Disk, device: &Path) {
    let Ok(file) = File::open(device) else { return };
    let read = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    let tables = partition_table::read(&read, disk.size, disk.logical_sector.into());
    let Some(table) = tables.valid() else { return };
    for partition in &mut disk.partitions {
        let same = |entry: &&PartitionEntry| (entry.start, entry.size) == (partition.start, partition.size);
        partition.entry = table.entries.iter().find(same).map(found_entry);
    }
    if disk.partitions.is_empty() {
        disk.partitions = table.entries.iter().map(|entry| unseen(disk, entry)).collect();
    }
}

fn found_entry(entry: &PartitionEntry) -> FoundEntry {
    FoundEntry { number: entry.number, kind: entry.kind, uuid: entry.uuid }
}

/// A partition that the kernel does not show, with the name that it would have.
fn unseen(disk: &Disk, entry: &PartitionEntry) -> FoundPartition {
    let between = if disk.name.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
    let name = format!("{}{between}{}", disk.name, entry.number);
    FoundPartition {
        path: node(&name),
        name,
        start: entry.start,
        size: entry.size,
        entry: Some(found_entry(entry)),
        label: (!entry.name.is_empty()).then(|| entry.name.clone()),
        signatures: Vec::new(),
        links: Vec::new(),
    }
}
