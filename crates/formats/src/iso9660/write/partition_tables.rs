//! The GUID partition table that makes a USB stick of an image: one copy behind the boot sector, one at the end.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

use anyhow::{Context, Result};
use gpt::GptConfig;
use gpt::disk::LogicalBlockSize;
use gpt::partition::Partition;
use gpt::partition_types::{self, Type};
use uuid::Uuid;

use crate::iso9660::address::{Block, Extent};
use base::size::ByteSize;

/// The first block of partition 1.
pub const PARTITION: Block = Block(16);
/// USB sticks have sectors of 512 bytes.
pub(super) const SECTOR: u64 = 512;
/// Sectors of a copy of the GUID partition table: header, and 128 entries of 128 bytes.
const TABLE_SECTORS: u64 = 33;
/// A partition that must not be removed (UEFI 2.10, 5.3.3) and, by Microsoft's meaning of the bit, is read-only.
const READ_ONLY: u64 = 1 << 60 | 1;

/// Both copies of the GUID partition table, with the files as partition 1 and the EFI system partition as 2: the one
/// behind the boot sector, and the one at the end of an ISO of `size`.
pub(super) fn partition_tables(esp: Extent, size: ByteSize, guid: Uuid) -> Result<[Vec<u8>; 2]> {
    let start = esp.start.offset().0;
    let files = (PARTITION.offset().0, start);
    let esp = (start, start + u64::from(esp.length));
    let partition = |name: &str, kind: Type, (start, end): (u64, u64), flags| Partition {
        part_type_guid: kind,
        part_guid: Uuid::new_v5(&guid, name.as_bytes()),
        first_lba: start / SECTOR,
        last_lba: (end / SECTOR).saturating_sub(1),
        flags,
        name: name.to_owned(),
    };
    let partitions = BTreeMap::from([
        (1, partition("ISO9660", partition_types::BASIC, files, READ_ONLY)),
        (2, partition("ESP", partition_types::EFI, esp, 0)),
    ]);
    let config = GptConfig::new().logical_block_size(LogicalBlockSize::Lb512).writable(true);
    let mut ends = DiskEnds::new(size.get());
    let mut table = config.create_from_device(&mut ends, Some(guid)).context("making a partition table")?;
    table.update_partitions(partitions).context("making a partition table")?;
    table.write().context("making a partition table")?;
    let DiskEnds { mut head, tail, .. } = ends;
    head.drain(..usize::try_from(SECTOR)?);
    Ok([head, tail])
}

/// A device in memory that keeps only its two ends, with the copies of a partition table. The bytes between are zero.
#[derive(Debug)]
struct DiskEnds {
    size: u64,
    position: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl DiskEnds {
    fn new(size: u64) -> Self {
        let table = usize::try_from(TABLE_SECTORS * SECTOR).unwrap_or_default();
        let sector = usize::try_from(SECTOR).unwrap_or_default();
        Self { size, position: 0, head: vec![0; sector + table], tail: vec![0; table] }
    }

    /// The kept bytes at the current position, or the number of zeros up to the next kept byte.
    fn here(&mut self) -> Result<&mut [u8], u64> {
        let tail = self.size.saturating_sub(self.tail.len() as u64);
        let inside = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let (head, position) = (self.head.len() as u64, self.position);
        match position {
            _ if position >= self.size => Err(0),
            _ if position >= tail => Ok(&mut self.tail[inside(position - tail)..]),
            _ if position < head => Ok(&mut self.head[inside(position)..]),
            _ => Err(tail - position),
        }
    }
}

impl Read for DiskEnds {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match self.here() {
            Ok(bytes) => {
                let count = bytes.len().min(buffer.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                count
            }
            Err(gap) => {
                let count = usize::try_from(gap).unwrap_or(usize::MAX).min(buffer.len());
                buffer[..count].fill(0);
                count
            }
        };
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for DiskEnds {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let here = self.here().map_err(|_| io::Error::other("a partition table outside its area"))?;
        let count = here.len().min(bytes.len());
        here[..count].copy_from_slice(&bytes[..count]);
        self.position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for DiskEnds {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.size.checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
