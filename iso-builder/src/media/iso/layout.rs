//! Where everything lies on an ISO.
//!
//! | block | content |
//! |---|---|
//! | 0 | boot sector for BIOS and partition table (16 blocks) |
//! | 16 | volume descriptors |
//! | 32 | volume descriptors of partition 1 |
//! | 48 | boot catalogue, Rock Ridge's name, path tables, directories |
//! | then | files; then the EFI system partition; then padding, at its end the backup partition table |
//!
//! A USB stick shows the same files twice: on the whole device and on partition 1, which begins [`PARTITION`] blocks
//! later, so that it does not overlap the partition table. Each way of seeing them has its own descriptors, path
//! tables and directories, since addresses count from the beginning of the volume; both share the files.

use anyhow::{Context, Result, ensure};
use installer::size::ByteSize;
use jiff::civil::DateTime;

use super::tree::Tree;
use super::{descriptors, records};
use crate::iso9660::{BLOCK_SIZE, Block, Extent};

/// The first block of partition 1.
pub(super) const PARTITION: Block = Block(16);
/// The first volume descriptor of a volume; what precedes it belongs to others (ECMA-119, 6.2.1).
const DESCRIPTORS: Block = Block(16);
/// Firmware and kernels of old read ahead beyond the end of a disc; so much padding keeps them from an error.
const PADDING: u32 = 150;
/// Files begin at a page of the page cache, so that a file system that can share blocks does so.
const FILE_ALIGNMENT: u32 = 4096 / BLOCK_SIZE;
/// The EFI system partition begins at a whole MiB, as partitions on disks do.
const ESP_ALIGNMENT: u32 = (1 << 20) / BLOCK_SIZE;
/// The longest extent: the most whole blocks whose length fits 32 bits.
const MAX_EXTENT: u64 = (u32::MAX - (BLOCK_SIZE - 1)) as u64;

/// The addresses of an ISO, and its bytes up to the first file.
#[derive(Debug)]
pub(super) struct Layout {
    /// Boot sector and partition table are left zero.
    pub(super) head: Vec<u8>,
    /// The extents of each file.
    pub(super) files: Vec<Vec<Extent>>,
    pub(super) esp: Extent,
    /// Length of the whole.
    pub(super) size: ByteSize,
}

/// Where the two path tables of a view are, and how long each is in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathTables {
    pub(super) little: Block,
    pub(super) big: Block,
    pub(super) length: u32,
}

/// The addresses as one of the two volumes counts them.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// The volume's first block.
    first: Block,
    /// The block after the ISO's last.
    end: Block,
    extension: Block,
    directories: &'a [Extent],
    files: &'a [Vec<Extent>],
}

impl View<'_> {
    /// A block as this volume counts it.
    pub(super) fn address(&self, block: Block) -> Block {
        Block(block.0.saturating_sub(self.first.0))
    }

    /// Length of the volume.
    pub(super) fn blocks(&self) -> u32 {
        self.address(self.end).0
    }

    pub(super) fn extension(&self) -> Block {
        self.address(self.extension)
    }

    pub(super) fn directory(&self, index: usize) -> Extent {
        self.own(self.directories[index])
    }

    pub(super) fn file(&self, index: usize) -> Vec<Extent> {
        self.files[index].iter().map(|extent| self.own(*extent)).collect()
    }

    fn own(&self, extent: Extent) -> Extent {
        Extent { start: self.address(extent.start), length: extent.length }
    }
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
    /// The layout of files of the lengths `sizes` in `tree`, and of an EFI system partition of `esp` bytes. The first
    /// file is what BIOS starts.
    pub(super) fn new(volume: &str, tree: &Tree, sizes: &[u64], esp: u64, time: DateTime) -> Result<Self> {
        ensure!((1901..2155).contains(&time.year()), "an ISO cannot tell the year {}", time.year());
        let mut free = Allocator(u64::from(DESCRIPTORS.0 + PARTITION.0 + 16));
        let catalogue = free.take(1, 1)?;
        let extension = free.take(1, 1)?;
        // Addresses do not change lengths, so lengths can be known before addresses.
        let nowhere = vec![Extent { start: Block(0), length: 0 }; tree.directories.len()];
        let extents: Vec<_> = sizes.iter().map(|size| split(Block(0), *size)).collect::<Result<_>>()?;
        let draft =
            View { first: Block(0), end: Block(0), extension, directories: &nowhere, files: &extents };
        let lengths: Vec<_> = (0..tree.directories.len())
            .map(|index| records::directory(tree, index, &draft, time).len() as u64)
            .collect();
        let table = records::path_table(tree, &draft, u32::to_le_bytes, u16::to_le_bytes).len() as u64;
        let volumes =
            [Block(0), PARTITION].map(|first| Directories::allocate(first, &mut free, table, &lengths));
        let beginning = free.0;

        let mut files = Vec::new();
        for size in sizes {
            files.push(split(free.take(*size, FILE_ALIGNMENT)?, *size)?);
        }
        let esp = Extent { start: free.take(esp, ESP_ALIGNMENT)?, length: u32::try_from(esp)? };
        free.take(u64::from(PADDING) * u64::from(BLOCK_SIZE), 1)?;
        let end = block(free.0)?;

        let mut head = vec![0; usize::try_from(block(beginning)?.offset().0)?];
        let mut put = |at: Block, bytes: &[u8]| {
            let at = usize::try_from(at.offset().0)?;
            head[at..at + bytes.len()].copy_from_slice(bytes);
            anyhow::Ok(())
        };
        put(extension, &records::extension())?;
        let bios = files.first().and_then(|extents| extents.first());
        put(catalogue, &descriptors::catalogue(bios.context("an ISO without a file")?.start, esp))?;
        for volume_directories in volumes {
            let Directories { first, tables, extents } = volume_directories?;
            let view = View { first, end, extension, directories: &extents, files: &files };
            let mut at = Block(first.0 + DESCRIPTORS.0);
            let mut descriptors = vec![descriptors::primary(volume, &view, &tables, time)];
            if first == Block(0) {
                // Firmware looks here; partition 1 is started by nobody.
                descriptors.push(descriptors::boot(catalogue));
            }
            descriptors.push(descriptors::terminator());
            for descriptor in descriptors {
                put(at, &descriptor)?;
                at = Block(at.0 + 1);
            }
            put(tables.little, &records::path_table(tree, &view, u32::to_le_bytes, u16::to_le_bytes))?;
            put(tables.big, &records::path_table(tree, &view, u32::to_be_bytes, u16::to_be_bytes))?;
            for (index, extent) in extents.iter().enumerate() {
                put(extent.start, &records::directory(tree, index, &view, time))?;
            }
        }
        Ok(Self { head, files, esp, size: ByteSize::bytes(end.offset().0) })
    }
}

impl Directories {
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
