//! The layout of an ISO.
//!
//! | block | content |
//! |---|---|
//! | 0 | boot sector, for BIOS too where there is code for it, and partition table (16 blocks) |
//! | 16 | volume descriptors |
//! | 32 | volume descriptors of partition 1 |
//! | 48 | boot catalog, Rock Ridge's name, path tables, directories |
//! | then | files; then the EFI system partition; then padding, at its end the backup partition table |
//!
//! A USB stick shows the same files twice: on the whole device and on partition 1, which begins [`PARTITION`] blocks
//! later, so that it does not overlap the partition table. Each way of seeing them has its own descriptors, path
//! tables and directories, since addresses count from the beginning of the volume; both share the files.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::owner::{HybridVolume, RegionOwner};
use super::partition_tables::{PARTITION, SECTOR, partition_tables};
use super::tree::Tree;
use super::view::{PathTables, VolumeView};
use super::{descriptors, records};
use crate::iso9660::address::{BLOCK_SIZE, Block, Extent, Offset};
use crate::iso9660::ecma119::DESCRIPTORS;
use base::size::ByteSize;

/// Firmware and kernels of old read ahead beyond the end of a disc; so much padding keeps them from an error.
const PADDING: u32 = 150;
/// Files begin at a page of the page cache, so that a file system that can share blocks does so.
const FILE_ALIGNMENT: u32 = 4096 / BLOCK_SIZE;
/// The EFI system partition begins at a whole MiB, as partitions on disks do.
const ESP_ALIGNMENT: u32 = (1 << 20) / BLOCK_SIZE;
/// The longest extent: the most whole blocks whose length fits 32 bits.
const MAX_EXTENT: u64 = (u32::MAX - (BLOCK_SIZE - 1)) as u64;

#[derive(Clone, Debug)]
pub struct LayoutInput<'a> {
    /// Volume id: up to 32 of A-Z, 0-9 and `_`.
    pub volume: &'a str,
    /// Who made the image, in its volume descriptors: up to 128 of A-Z, 0-9, space and a few signs (ECMA-119, 7.4.1).
    pub preparer: &'a str,
    pub guid: Uuid,
    /// The time of the volume and of every file, in seconds since 1970.
    pub epoch: u64,
    /// The files with their lengths in bytes, in the order in which they lie.
    pub files: Vec<(&'a str, u64)>,
    /// True if the first file is GRUB's El Torito image, which BIOS starts.
    pub bios: bool,
    /// Length of the EFI system partition in bytes.
    pub esp: u64,
}

/// The addresses of an ISO, and its bytes beside files, EFI system partition and boot sector.
#[derive(Debug)]
pub struct Layout {
    /// Descriptors, tables and directories.
    pub parts: Vec<LayoutPart>,
    /// The extents of each file, one behind the other without a gap; one of length 0 for an empty file.
    pub files: Vec<Vec<Extent>>,
    pub esp: Extent,
    pub size: ByteSize,
}

#[derive(Debug)]
pub struct LayoutPart {
    pub owner: RegionOwner,
    pub at: Offset,
    pub bytes: Vec<u8>,
}

/// Hands out blocks one after the other.
struct Allocator(u64);

impl Allocator {
    fn take(&mut self, bytes: u64, alignment: u32) -> Result<Block> {
        let start = self.0.next_multiple_of(u64::from(alignment));
        self.0 = start + bytes.div_ceil(u64::from(BLOCK_SIZE));
        block(start)
    }
}

fn block(number: u64) -> Result<Block> {
    u32::try_from(number).map(Block).ok().context("the content is more than an ISO can hold (8 TiB)")
}

/// The directories' extents and path tables of one volume.
struct Directories {
    first: Block,
    tables: PathTables,
    extents: Vec<Extent>,
}

impl Layout {
    pub fn new(outline: &LayoutInput<'_>) -> Result<Self> {
        let time =
            Timestamp::from_second(i64::try_from(outline.epoch)?).context("reading the build's time")?;
        let time = time.to_zoned(TimeZone::UTC).datetime();
        ensure!((1901..2155).contains(&time.year()), "an ISO cannot have the year {}", time.year());
        let tree = Tree::new(outline.files.iter().map(|(path, _)| *path))?;
        let mut free = Allocator(u64::from(DESCRIPTORS.0 + PARTITION.0 + 16));
        let catalog = free.take(1, 1)?;
        let extension = free.take(1, 1)?;
        let volumes = Directories::allocate_both(&tree, outline, extension, time, &mut free)?;

        let mut files = Vec::new();
        for (_, size) in &outline.files {
            files.push(split(free.take(*size, FILE_ALIGNMENT)?, *size)?);
        }
        let esp =
            Extent { start: free.take(outline.esp, ESP_ALIGNMENT)?, length: u32::try_from(outline.esp)? };
        free.take(u64::from(PADDING) * u64::from(BLOCK_SIZE), 1)?;
        let end = block(free.0)?;
        let size = ByteSize::bytes(end.offset().0);

        let first = files.first().and_then(|extents| extents.first()).context("an ISO without a file")?.start;
        let bios = outline.bios.then_some(first);
        let part = |owner, at: Block, bytes| LayoutPart { owner, at: at.offset(), bytes };
        let mut parts = vec![
            part(RegionOwner::RockRidge, extension, records::extension()),
            part(RegionOwner::BootCatalog, catalog, descriptors::catalog(bios, esp)),
        ];
        for Directories { first, tables, extents } in volumes {
            let volume = if first == Block(0) { HybridVolume::Device } else { HybridVolume::Partition };
            let view = VolumeView { first, end, extension, directories: &extents, files: &files };
            let mut descriptors =
                descriptors::primary(outline.volume, outline.preparer, &view, &tables, time);
            if volume == HybridVolume::Device {
                // Firmware reads the boot catalog of the whole device only.
                descriptors.extend(descriptors::boot(catalog));
            }
            descriptors.extend(descriptors::terminator());
            parts.push(part(RegionOwner::Descriptors(volume), Block(first.0 + DESCRIPTORS.0), descriptors));
            let little = records::path_table(&tree, &view, u32::to_le_bytes, u16::to_le_bytes);
            let big = records::path_table(&tree, &view, u32::to_be_bytes, u16::to_be_bytes);
            parts.push(part(RegionOwner::PathTable(volume), tables.little, little));
            parts.push(part(RegionOwner::PathTable(volume), tables.big, big));
            for (index, extent) in extents.iter().enumerate() {
                let owner = RegionOwner::Directory(volume, tree.directories[index].path.clone());
                parts.push(part(owner, extent.start, records::directory(&tree, index, &view, time)));
            }
        }
        let [table, backup] = partition_tables(esp, size, outline.guid)?;
        let at = Offset(size.get() - backup.len() as u64);
        parts.push(LayoutPart { owner: RegionOwner::PartitionTable, at: Offset(SECTOR), bytes: table });
        parts.push(LayoutPart { owner: RegionOwner::BackupTable, at, bytes: backup });
        Ok(Self { parts, files, esp, size })
    }

    /// Where the file with this number begins.
    #[must_use]
    pub fn start(&self, file: usize) -> Block {
        self.files.get(file).and_then(|extents| extents.first()).map_or(Block(0), |extent| extent.start)
    }
}

impl Directories {
    /// Those of the whole device and those of partition 1.
    fn allocate_both(
        tree: &Tree,
        outline: &LayoutInput<'_>,
        extension: Block,
        time: DateTime,
        free: &mut Allocator,
    ) -> Result<[Self; 2]> {
        // Addresses do not change lengths, so lengths can be known before addresses.
        let nowhere = vec![Extent { start: Block(0), length: 0 }; tree.directories.len()];
        let files: Vec<_> =
            outline.files.iter().map(|(_, size)| split(Block(0), *size)).collect::<Result<_>>()?;
        let draft =
            VolumeView { first: Block(0), end: Block(0), extension, directories: &nowhere, files: &files };
        let lengths: Vec<_> = (0..tree.directories.len())
            .map(|index| records::directory(tree, index, &draft, time).len() as u64)
            .collect();
        let table = records::path_table(tree, &draft, u32::to_le_bytes, u16::to_le_bytes).len() as u64;
        let mut allocate = |first| Self::allocate(first, free, table, &lengths);
        Ok([allocate(Block(0))?, allocate(PARTITION)?])
    }

    fn allocate(first: Block, free: &mut Allocator, table: u64, lengths: &[u64]) -> Result<Self> {
        let tables = PathTables {
            little: free.take(table, 1)?,
            big: free.take(table, 1)?,
            length: u32::try_from(table)?,
        };
        let extents = lengths
            .iter()
            .map(|length| Ok(Extent { start: free.take(*length, 1)?, length: u32::try_from(*length)? }))
            .collect::<Result<_>>()?;
        Ok(Self { first, tables, extents })
    }
}

/// The extents of a file of `size` bytes whose first block is `start`; one of length 0 for an empty file.
fn split(start: Block, size: u64) -> Result<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut done = 0;
    loop {
        let length = (size - done).min(MAX_EXTENT);
        let start = block(u64::from(start.0) + done / u64::from(BLOCK_SIZE))?;
        extents.push(Extent { start, length: u32::try_from(length)? });
        done += length;
        if done == size {
            return Ok(extents);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_four_gibibytes_and_more_has_several_extents_without_gaps() {
        let size = 9 * (1 << 30) + 5;
        let extents = split(Block(100), size).unwrap();
        assert_eq!(extents.len(), 3);
        for pair in extents.windows(2) {
            assert_eq!(pair[0].length % BLOCK_SIZE, 0);
            assert_eq!(pair[1].start.0, pair[0].start.0 + pair[0].length / BLOCK_SIZE);
        }
        assert_eq!(extents.iter().map(|extent| u64::from(extent.length)).sum::<u64>(), size);
        assert_eq!(split(Block(7), 0).unwrap(), [Extent { start: Block(7), length: 0 }]);
    }

    #[test]
    fn more_than_an_iso_can_hold_is_an_error() {
        assert!(split(Block(0), 9 << 40).is_err());
    }
}
