//! GUID partition tables of a disk; each of the two copies is validated by itself (UEFI 2.10, 5.3).
//!
//! The kernel shows no partitions of a disk whose first copy is damaged, as a power cut in the middle of a write
//! leaves it. This reader still finds the partitions. It writes nothing; [`growth`] computes the writes for a disk that has
//! become larger.

pub mod active_entry;
pub mod growth;

use std::io;

use flate2::Crc;
use uuid::Uuid;

use base::size::ByteSize;

/// Both copies; one that is absent, damaged, unreadable or not whole is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionTables {
    /// The copy at the start of the disk.
    pub primary: Option<PartitionTable>,
    /// The copy at the end of the disk.
    pub backup: Option<PartitionTable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// The identity of the disk.
    pub guid: Uuid,
    /// The entries in use, by their numbers.
    pub entries: Vec<PartitionEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionEntry {
    /// Its place in the table, from 1.
    pub number: u32,
    /// The GUID of its type.
    pub kind: Uuid,
    /// Its own identity, PARTUUID.
    pub uuid: Uuid,
    pub start: ByteSize,
    pub size: ByteSize,
    pub name: String,
}

impl PartitionTables {
    /// The first copy, or the second if only that is valid.
    #[must_use]
    pub fn valid(&self) -> Option<&PartitionTable> {
        self.primary.as_ref().or(self.backup.as_ref())
    }
}

impl PartitionEntry {
    /// The first byte after the partition.
    #[must_use]
    pub fn end(&self) -> ByteSize {
        self.start + self.size
    }
}

/// Fills a buffer from a byte offset; both are multiples of the sector size.
pub type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> io::Result<()> + 'a;

/// The limit of the entries of a table, in bytes; UEFI's take 16 KiB.
const MOST: u64 = 1 << 20;

/// The length of a header without what is reserved behind it.
const HEADER: usize = 92;

/// Reads both copies of the table of a disk of `size` with sectors of `sector` bytes.
#[must_use]
pub fn read(read: &ReadAt<'_>, size: ByteSize, sector: u64) -> PartitionTables {
    let disk = SectorReader { read, sectors: size.get() / sector, sector };
    if disk.sectors < 4 {
        return PartitionTables::default();
    }
    PartitionTables { primary: disk.copy(1), backup: disk.copy(disk.sectors - 1) }
}

struct SectorReader<'a> {
    read: &'a ReadAt<'a>,
    sectors: u64,
    sector: u64,
}

/// The fields of a header that reading needs. Addresses are in sectors.
struct Header {
    guid: Uuid,
    entries: u64,
    count: u64,
    length: u64,
    checksum: u32,
}

impl SectorReader<'_> {
    /// The copy whose header is in sector `place`.
    fn copy(&self, place: u64) -> Option<PartitionTable> {
        let mut sector = vec![0; usize::try_from(self.sector).ok()?];
        (self.read)(place * self.sector, &mut sector).ok()?;
        let header = self.header(&sector, place)?;
        let used = header.count * header.length;
        let length = used.next_multiple_of(self.sector);
        if header.entries.checked_add(length / self.sector)? > self.sectors {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        (self.read)(header.entries * self.sector, &mut bytes).ok()?;
        bytes.truncate(usize::try_from(used).ok()?);
        if checksum(&bytes) != header.checksum {
            return None;
        }
        let size = usize::try_from(header.length).ok()?;
        let entries = (1..).zip(bytes.chunks(size)).filter_map(|(number, entry)| self.entry(number, entry));
        Some(PartitionTable { guid: header.guid, entries: entries.collect() })
    }

    /// The header in the bytes of sector `place`, if there is a whole one that belongs there.
    fn header(&self, sector: &[u8], place: u64) -> Option<Header> {
        let length = usize::try_from(number(sector, 12, 4)).ok()?;
        if !sector.starts_with(b"EFI PART") || length < HEADER || number(sector, 24, 8) != place {
            return None;
        }
        let mut header = sector.get(..length)?.to_vec();
        header[16..20].fill(0);
        if u64::from(checksum(&header)) != number(sector, 16, 4) {
            return None;
        }
        let found = Header {
            guid: guid(sector, 56)?,
            entries: number(sector, 72, 8),
            count: number(sector, 80, 4),
            length: number(sector, 84, 4),
            checksum: u32::try_from(number(sector, 88, 4)).ok()?,
        };
        // An entry has 128 bytes times a power of two.
        let sound = found.length >= 128 && found.length.is_power_of_two();
        (sound && found.count.checked_mul(found.length)? <= MOST).then_some(found)
    }

    /// The entry, if it is in use and lies on the disk.
    fn entry(&self, place: u32, bytes: &[u8]) -> Option<PartitionEntry> {
        let kind = guid(bytes, 0)?;
        let (first, last) = (number(bytes, 32, 8), number(bytes, 40, 8));
        if kind.is_nil() || last < first || last >= self.sectors {
            return None;
        }
        let name: Vec<_> = bytes[56..128]
            .chunks(2)
            .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
            .take_while(|unit| *unit != 0)
            .collect();
        Some(PartitionEntry {
            number: place,
            kind,
            uuid: guid(bytes, 16)?,
            start: ByteSize::bytes(first * self.sector),
            size: ByteSize::bytes((last - first + 1) * self.sector),
            name: String::from_utf16_lossy(&name),
        })
    }
}

/// The CRC-32 that UEFI means, that of Ethernet.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// A number of `length` bytes, the least significant first.
fn number(bytes: &[u8], offset: usize, length: usize) -> u64 {
    bytes[offset..offset + length].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// A GUID, whose first three parts are stored with the least significant byte first.
fn guid(bytes: &[u8], offset: usize) -> Option<Uuid> {
    bytes.get(offset..offset + 16).and_then(|bytes| bytes.try_into().ok()).map(Uuid::from_bytes_le)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::command::{Invocation, Runner, SystemRunner};
    use proptest::prelude::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const SIZE: u64 = 64 << 20;
    const DATA: Uuid = uuid::uuid!("6d0e4a52-8c2c-4a4f-9d55-8e1f3c6b7a90");

    fn from(file: &File, sector: u64) -> PartitionTables {
        let size = ByteSize::bytes(file.metadata().unwrap().len());
        read(&|offset, buffer| file.read_exact_at(buffer, offset), size, sector)
    }

    /// A disk that another program has partitioned.
    fn disk() -> tempfile::NamedTempFile {
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(SIZE).unwrap();
        let make = Invocation::new("sgdisk")
            .args(["-n", "3:2048:+4M", "-c", "3:data", "-u", &format!("3:{DATA}"), "-n", "1:0:0"])
            .args(["-t", "1:EF00", "-c", "1:an ESP; \u{e9}"])
            .arg(disk.path());
        SystemRunner.run(&make).unwrap();
        disk
    }

    #[test]
    fn what_another_program_wrote_is_read_from_both_copies() {
        let disk = disk();
        let tables = from(disk.as_file(), 512);
        assert_eq!(tables.primary, tables.backup);
        let [esp, data] = &tables.valid().unwrap().entries[..] else { panic!("{tables:?}") };
        assert_eq!((data.number, data.uuid, data.name.as_str()), (3, DATA, "data"));
        assert_eq!((data.start, data.size), (ByteSize::mib(1), ByteSize::mib(4)));
        assert_eq!(data.kind, uuid::uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4"));
        assert_eq!((esp.number, esp.name.as_str()), (1, "an ESP; \u{e9}"));
        assert_eq!(esp.kind, uuid::uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"));
    }

    #[test]
    fn a_copy_that_is_damaged_anywhere_leaves_the_other() {
        for (at, primary) in
            [(512 + 60, true), (1024 + 33, true), (SIZE - 500, false), (SIZE - 16_000, false)]
        {
            let disk = disk();
            let whole = from(disk.as_file(), 512);
            disk.as_file().write_all_at(b"!", at).unwrap();
            let tables = from(disk.as_file(), 512);
            assert_eq!((tables.primary.is_none(), tables.backup.is_none()), (primary, !primary), "{at}");
            assert_eq!(tables.valid(), whole.valid());
        }
    }

    #[test]
    fn a_table_for_other_sectors_is_none() {
        assert_eq!(from(disk().as_file(), 4096), PartitionTables::default());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fall(
            header in proptest::collection::vec(any::<u8>(), 512),
            small in 0_u32..5000,
            length in 0_u32..5000,
            seal: bool,
        ) {
            let mut bytes = vec![0; 64 << 10];
            bytes[512..1024].copy_from_slice(&header);
            bytes[512..520].copy_from_slice(b"EFI PART");
            bytes[524..528].copy_from_slice(&92_u32.to_le_bytes());
            bytes[536..544].copy_from_slice(&1_u64.to_le_bytes());
            if seal {
                bytes[592..596].copy_from_slice(&small.to_le_bytes());
                bytes[596..600].copy_from_slice(&length.to_le_bytes());
            }
            bytes[528..532].fill(0);
            let sum = checksum(&bytes[512..604]);
            bytes[528..532].copy_from_slice(&sum.to_le_bytes());
            let size = ByteSize::bytes(bytes.len() as u64);
            let from = |offset: u64, buffer: &mut [u8]| {
                let offset = usize::try_from(offset).unwrap();
                buffer.copy_from_slice(&bytes[offset..offset + buffer.len()]);
                Ok(())
            };
            let _ = read(&from, size, 512);
        }
    }
}
