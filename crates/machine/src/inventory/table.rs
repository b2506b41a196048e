//! The entries of a partition table that the kernel does not show.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::disk::{Disk, FoundEntry, FoundPartition};
use super::sysfs::node;
use base::size::ByteSize;
use formats::partition_table::{self, PartitionEntry};

/// The entries of the GUID partition table on `device`; none without one.
pub(super) fn entries(device: &Path, size: ByteSize, sector: u32) -> Vec<PartitionEntry> {
    let Ok(file) = File::open(device) else { return Vec::new() };
    let read = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    let tables = partition_table::read(&read, size, sector.into());
    tables.valid().map(|table| table.entries.clone()).unwrap_or_default()
}

/// Gives each partition of `disk` its entry in the GUID partition table on `device`. If the kernel shows none, because the first
/// copy of the table is damaged, they come from the second copy.
pub(super) fn complete(disk: &mut Disk, device: &Path) {
    let entries = entries(device, disk.size, disk.logical_sector);
    for partition in &mut disk.partitions {
        let same = |entry: &&PartitionEntry| (entry.start, entry.size) == (partition.start, partition.size);
        partition.entry = entries.iter().find(same).map(found_entry);
    }
    if disk.partitions.is_empty() {
        disk.partitions = entries.iter().map(|entry| unseen(disk, entry)).collect();
    }
}

fn found_entry(entry: &PartitionEntry) -> FoundEntry {
    FoundEntry { number: entry.number, kind: entry.kind, uuid: entry.uuid }
}

/// A partition that the kernel does not show, with the name that it would have.
fn unseen(disk: &Disk, entry: &PartitionEntry) -> FoundPartition {
    let between = if disk.name.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
    found_partition(format!("{}{between}{}", disk.name, entry.number), entry)
}

/// The partition of an entry, with that kernel name.
pub(super) fn found_partition(name: String, entry: &PartitionEntry) -> FoundPartition {
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
