//! A table on a disk that has become larger: its last partition reaches to the new end, and its second copy moves there.
//!
//! The first copy is whole at every moment, whatever write a power cut ends: a header is one sector, which a disk writes whole or
//! not at all, and no entries are written over while the header points at them.

use super::{PartitionEntry, PartitionTable, ReadAt, SectorReader, checksum, number};
use base::size::ByteSize;

/// The sector of the first copy's header.
const PRIMARY: u64 = 1;
/// The first sector of the first copy's entries.
const HOME: u64 = 2;

/// The writes that grow a table with its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableGrowth {
    pub table: PartitionTable,
    pub partition: PartitionEntry,
    /// The writes in order; each has to be on the disk before the next. A run that was cut off is finished by another.
    pub writes: Vec<TableWrite>,
}

/// Whole sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableWrite {
    /// In bytes.
    pub offset: u64,
    pub bytes: Vec<u8>,
}

/// Grows the table of a disk of `size` with sectors of `sector` bytes to fill the disk; partitions end at multiples of
/// `alignment`. `None` if it does so already, or if it is none that can be grown: its first copy is damaged, or the disk has become
/// smaller.
#[must_use]
pub fn growth(read: &ReadAt<'_>, size: ByteSize, sector: u64, alignment: ByteSize) -> Option<TableGrowth> {
    let disk = SectorReader { read, sectors: size.get() / sector, sector };
    let end = disk.sectors.checked_sub(1)?;
    let length = usize::try_from(sector).ok()?;
    let (mut first, mut head) = (vec![0; length], vec![0; length]);
    read(0, &mut first).ok()?;
    read(PRIMARY * sector, &mut head).ok()?;
    let header = disk.header(&head, PRIMARY)?;
    let table = disk.copy(PRIMARY)?;
    let (alternate, used) = (number(&head, 32, 8), header.count * header.length);
    if alternate > end || (alternate == end && header.entries == HOME) {
        return None;
    }
    let sectors = used.div_ceil(sector);
    let mut entries = vec![0; usize::try_from(sectors * sector).ok()?];
    read(header.entries * sector, &mut entries).ok()?;
    let usable = end.checked_sub(sectors + 1)?;
    let aside = HOME + sectors;
    let begins = table.entries.iter().map(|entry| entry.start.get() / sector).min()?;
    let last = table.entries.iter().max_by_key(|entry| entry.end())?;
    // Between the table and the first partition there has to be room for the entries once more.
    if aside + sectors > begins || last.end().get() / sector > usable + 1 {
        return None;
    }
    let room = ByteSize::bytes((usable + 1) * sector).align_down(alignment.get());
    let mut partition = last.clone();
    partition.size = room.max(last.end()).saturating_sub(last.start);
    let place = usize::try_from(u64::from(last.number - 1) * header.length).ok()?;
    put(&mut entries, place + 40, &(partition.end().get() / sector - 1).to_le_bytes());
    let sum = checksum(entries.get(..usize::try_from(used).ok()?)?);
    let seal = |own: u64, other: u64, at: u64, first_usable: u64| {
        let mut bytes = head.clone();
        for (place, value) in [(24, own), (32, other), (40, first_usable), (48, usable), (72, at)] {
            put(&mut bytes, place, &value.to_le_bytes());
        }
        put(&mut bytes, 88, &sum.to_le_bytes());
        put(&mut bytes, 16, &[0; 4]);
        let length = usize::try_from(number(&head, 12, 4)).unwrap_or_default();
        let own_sum = checksum(&bytes[..length]);
        put(&mut bytes, 16, &own_sum.to_le_bytes());
        bytes
    };
    let first_usable = aside;
    let write = |place: u64, bytes: Vec<u8>| TableWrite { offset: place * sector, bytes };
    let mut writes = Vec::new();
    if let Some(protective) = protective(&first, end) {
        writes.push(write(0, protective));
    }
    writes.push(write(end - sectors, entries.clone()));
    writes.push(write(end, seal(end, PRIMARY, end - sectors, first_usable)));
    if header.entries == HOME {
        writes.push(write(aside, entries.clone()));
        writes.push(write(PRIMARY, seal(PRIMARY, end, aside, aside + sectors)));
    }
    writes.push(write(HOME, entries));
    writes.push(write(PRIMARY, seal(PRIMARY, end, HOME, first_usable)));
    let entries = table.entries.iter().map(|entry| if entry == last { &partition } else { entry });
    let table = PartitionTable { guid: table.guid, entries: entries.cloned().collect() };
    Some(TableGrowth { table, partition, writes })
}

/// The protective MBR with the number of sectors that follow it, `end` (UEFI 2.10, 5.2.3); `None` if it stays as it is.
fn protective(first: &[u8], end: u64) -> Option<Vec<u8>> {
    let mut bytes = first.to_vec();
    if bytes.get(450) != Some(&0xee) || bytes.get(510..512) != Some(&[0x55, 0xaa]) {
        return None;
    }
    put(&mut bytes, 458, &u32::try_from(end).unwrap_or(u32::MAX).to_le_bytes());
    (bytes != first).then_some(bytes)
}

fn put(bytes: &mut [u8], place: usize, value: &[u8]) {
    if let Some(there) = bytes.get_mut(place..place + value.len()) {
        there.copy_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::super::{PartitionTables, read};
    use super::*;
    use base::command::{Invocation, Runner, SystemRunner};

    const SMALL: u64 = 64 << 20;
    const LARGE: u64 = 100 << 20;
    const MIB: ByteSize = ByteSize::mib(1);

    /// A full disk of 64 MiB that another program has partitioned, on a disk that has become larger.
    fn grown_disk() -> tempfile::NamedTempFile {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(SMALL).unwrap();
        let make = Invocation::new("sgdisk").args(["-n", "1:2048:+4M", "-n", "2:0:+50M"]);
        SystemRunner.run(&make.arg(disk.path())).unwrap();
        disk.as_file().set_len(LARGE).unwrap();
        disk
    }

    fn tables(file: &File) -> PartitionTables {
        let size = ByteSize::bytes(file.metadata().unwrap().len());
        read(&|offset, buffer| file.read_exact_at(buffer, offset), size, 512)
    }

    fn of(file: &File) -> Option<TableGrowth> {
        let size = ByteSize::bytes(file.metadata().unwrap().len());
        growth(&|offset, buffer| file.read_exact_at(buffer, offset), size, 512, MIB)
    }

    fn apply(file: &File, writes: &[TableWrite]) {
        writes.iter().for_each(|write| file.write_all_at(&write.bytes, write.offset).unwrap());
    }

    fn problems(disk: &tempfile::NamedTempFile) -> Option<String> {
        let told = SystemRunner.run(&Invocation::new("sgdisk").arg("--verify").arg(disk.path())).unwrap();
        let told = String::from_utf8(told).unwrap();
        (!told.contains("No problems found")).then_some(told)
    }

    #[test]
    fn the_last_partition_reaches_to_the_end_and_other_programs_find_nothing_wrong() {
        let disk = grown_disk();
        let before = tables(disk.as_file());
        assert!(problems(&disk).is_some(), "the second copy is not at the end");
        let growth = of(disk.as_file()).unwrap();
        apply(disk.as_file(), &growth.writes);
        assert_eq!(problems(&disk), None);
        let after = tables(disk.as_file());
        assert_eq!(after.primary, after.backup);
        assert_eq!(after.primary.as_ref(), Some(&growth.table));
        let (before, after) = (before.primary.unwrap(), after.primary.unwrap());
        assert_eq!((before.guid, &before.entries[0]), (after.guid, &after.entries[0]));
        let [_, last] = &after.entries[..] else { panic!("{after:?}") };
        assert_eq!((last.end(), last.uuid), (ByteSize::mib(99), before.entries[1].uuid));
        assert_eq!(last.start, before.entries[1].start);
        assert_eq!(of(disk.as_file()), None, "there is nothing left to do");
    }

    #[test]
    fn a_disk_that_has_not_grown_or_has_shrunk_or_has_no_whole_table_stays_as_it_is() {
        let disk = grown_disk();
        for size in [SMALL, SMALL - (1 << 20)] {
            disk.as_file().set_len(size).unwrap();
            assert_eq!(of(disk.as_file()), None, "{size}");
        }
        let damaged = grown_disk();
        damaged.as_file().write_all_at(b"!", 1024 + 33).unwrap();
        assert_eq!(of(damaged.as_file()), None);
    }

    #[test]
    fn after_a_power_cut_at_any_sector_the_table_is_whole_and_the_next_run_finishes_it() {
        let whole = grown_disk();
        let start = tables(whole.as_file()).primary.unwrap();
        let growth = of(whole.as_file()).unwrap();
        // Each write is cut off after each of its sectors.
        let mut sectors = Vec::new();
        for write in &growth.writes {
            let cut = write.bytes.chunks(512).enumerate();
            sectors.extend(cut.map(|(index, bytes)| TableWrite {
                offset: write.offset + index as u64 * 512,
                bytes: bytes.to_vec(),
            }));
        }
        assert!(sectors.len() > 90, "three arrays of entries and their headers");
        for count in 0..sectors.len() {
            apply(whole.as_file(), &sectors[count..=count]);
            let found = tables(whole.as_file()).primary.unwrap();
            assert!(found == start || found == growth.table, "after {count} sectors: {found:?}");
            let Some(rest) = of(whole.as_file()) else {
                assert_eq!(count + 1, sectors.len());
                continue;
            };
            assert_eq!(rest.table, growth.table, "after {count} sectors");
            let finished = tempfile::NamedTempFile::new().unwrap();
            std::io::copy(&mut whole.reopen().unwrap(), &mut finished.reopen().unwrap()).unwrap();
            apply(finished.as_file(), &rest.writes);
            assert_eq!(of(finished.as_file()), None, "after {count} sectors");
            assert_eq!(tables(finished.as_file()).backup.as_ref(), Some(&growth.table));
        }
    }

    #[test]
    fn a_disk_that_grows_again_after_a_power_cut_is_finished_too() {
        let disk = grown_disk();
        let growth = of(disk.as_file()).unwrap();
        // The header points at the entries that were put aside.
        apply(disk.as_file(), &growth.writes[..growth.writes.len() - 2]);
        disk.as_file().set_len(2 * LARGE).unwrap();
        apply(disk.as_file(), &of(disk.as_file()).unwrap().writes);
        assert_eq!(problems(&disk), None);
        let last = tables(disk.as_file()).primary.unwrap().entries[1].end();
        assert_eq!(last, ByteSize::mib(199));
    }
}
