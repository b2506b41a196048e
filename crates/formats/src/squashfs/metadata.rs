//! Tables of metadata: blocks of 8 KiB, each with two bytes that say how long it is stored and whether it is compressed.
//!
//! What points into a table names the stored start of a block, counted from the table's, and a place in what the block
//! unpacks to. Expanding keeps the blocks and what they hold, so that only starts change.

use std::io::{self, Write};

use zstd::bulk::Decompressor;

use super::bytes::{u16_at, u64_at};
use super::error::{ExpandError, ExpandResult};
use crate::iso9660::{Offset, Source};

/// The content of a full block, in bytes; only the last block of a table has less.
pub(super) const BLOCK_BYTES: usize = 8192;
/// The two bytes before each block.
const HEADER_BYTES: usize = 2;
/// The bit of the header of a block that is not compressed.
const STORED: u16 = 1 << 15;

/// All metadata of an image together. An image of 20,000 files has 2 MB.
const MOST_METADATA: usize = 64 << 20;

/// Reads blocks of metadata, up to [`MOST_METADATA`].
pub(super) struct MetadataReader<'s, S> {
    source: &'s S,
    length: u64,
    left: usize,
    decompressor: Decompressor<'static>,
}

impl<'s, S: Source> MetadataReader<'s, S> {
    /// For an image that ends after `length` bytes of `source`.
    pub(super) fn new(source: &'s S, length: u64) -> ExpandResult<Self> {
        let decompressor = Decompressor::new().map_err(|error| ExpandError::Read(0, error))?;
        Ok(Self { source, length, left: MOST_METADATA, decompressor })
    }

    /// The bytes at `at`, which are not compressed.
    pub(super) fn plain(&mut self, at: u64, length: usize) -> ExpandResult<Vec<u8>> {
        self.left = self.left.checked_sub(length).ok_or_else(too_much)?;
        read_exactly(self.source, self.length, at, length)
    }

    /// A table whose blocks lie from `start` to `end`.
    pub(super) fn table(&mut self, start: u64, end: u64) -> ExpandResult<Table> {
        let mut table = Table { bytes: Vec::new(), blocks: Vec::new() };
        let mut at = start;
        while at < end {
            table.blocks.push(Block { stored: at - start, plain: table.bytes.len() });
            at = self.block(at, &mut table.bytes)?;
        }
        if at != end {
            return Err(ExpandError::Damaged("a table does not end where the next begins"));
        }
        // Places at the very end: an empty directory has one.
        table.blocks.push(Block { stored: end - start, plain: table.bytes.len() });
        Ok(table)
    }

    /// A table of `length` bytes whose blocks are named by an index at `index`.
    pub(super) fn indexed(&mut self, index: u64, length: usize) -> ExpandResult<IndexedTable> {
        let places = self.plain(index, 8 * length.div_ceil(BLOCK_BYTES))?;
        let first = u64_at(&places, 0)?;
        let mut bytes = Vec::new();
        for place in (0..places.len()).step_by(8) {
            let wanted = length.min(bytes.len() + BLOCK_BYTES);
            let at = u64_at(&places, place)?;
            self.block(at, &mut bytes)?;
            if bytes.len() != wanted {
                return Err(ExpandError::Block(at));
            }
        }
        Ok(IndexedTable { first, bytes })
    }

    /// Appends what the block at `at` holds to `bytes`; returns where the block ends.
    fn block(&mut self, at: u64, bytes: &mut Vec<u8>) -> ExpandResult<u64> {
        // The unpacked size counts too, so that no image can exhaust memory.
        self.left = self.left.checked_sub(BLOCK_BYTES).ok_or_else(too_much)?;
        let header = u16_at(&read_exactly(self.source, self.length, at, HEADER_BYTES)?, 0)?;
        let length = usize::from(header & !STORED);
        if length == 0 || length > BLOCK_BYTES {
            return Err(ExpandError::Damaged("a block of metadata has a length that is not allowed"));
        }
        let start = at.saturating_add(HEADER_BYTES as u64);
        let stored = read_exactly(self.source, self.length, start, length)?;
        if header & STORED != 0 {
            bytes.extend(&stored);
        } else {
            let mut plain = [0; BLOCK_BYTES];
            let unpacked = self.decompressor.decompress_to_buffer(&stored, &mut plain[..]);
            let count = unpacked.map_err(|_| ExpandError::Block(at))?;
            bytes.extend(plain.get(..count).filter(|plain| !plain.is_empty()).ok_or(ExpandError::Block(at))?);
        }
        Ok(start.saturating_add(length as u64))
    }
}

fn too_much() -> ExpandError {
    ExpandError::Unsupported(format!("it has more than {} MiB of metadata", MOST_METADATA >> 20))
}

/// Reads exactly `length` bytes at `at` of an image of `image_length`. Memory is taken only after it is known that the image
/// is that long.
pub(super) fn read_exactly(
    source: &impl Source,
    image_length: u64,
    at: u64,
    length: usize,
) -> ExpandResult<Vec<u8>> {
    let mut bytes = Vec::new();
    read_into(&mut bytes, source, image_length, at, length)?;
    Ok(bytes)
}

/// Reads as [`read_exactly`] into `bytes`, in place of what they were before.
pub(super) fn read_into(
    bytes: &mut Vec<u8>,
    source: &impl Source,
    image_length: u64,
    at: u64,
    length: usize,
) -> ExpandResult<()> {
    let needed = at.saturating_add(length as u64);
    if needed > image_length {
        return Err(ExpandError::Truncated { needed, length: image_length });
    }
    bytes.resize(length, 0);
    let mut done = 0;
    while done < length {
        let place = at.saturating_add(done as u64);
        match source.read_at(&mut bytes[done..], Offset(place)) {
            Ok(0) => return Err(ExpandError::Truncated { needed, length: place }),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ExpandError::Read(place, error)),
        }
    }
    Ok(())
}

/// Where a block of a table begins.
#[derive(Clone, Copy)]
struct Block {
    /// In the image, from the table's start.
    stored: u64,
    /// In the bytes of the table.
    plain: usize,
}

/// Where a block of an expanded table begins that holds the bytes from `plain` on.
pub(super) fn stored_start(plain: usize) -> u64 {
    let number = plain / BLOCK_BYTES;
    (number * (BLOCK_BYTES + HEADER_BYTES)) as u64
}

/// What refers to a place in the bytes of an expanded table: the start of its block, and in the lowest 16 bits the place in that.
pub(super) fn reference(position: usize) -> u64 {
    stored_start(position) << 16 | (position % BLOCK_BYTES) as u64
}

/// A table, and where the places in it were.
#[derive(Clone)]
pub(super) struct Table {
    pub(super) bytes: Vec<u8>,
    /// In ascending order; after the last block its end.
    blocks: Vec<Block>,
}

impl Table {
    /// A table with these bytes, as the expanded form has it.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        let full = (0..bytes.len()).step_by(BLOCK_BYTES);
        let block = |plain: usize| Block { stored: stored_start(plain), plain };
        let mut blocks: Vec<_> = full.map(block).collect();
        blocks.push(Block {
            stored: (bytes.len() + HEADER_BYTES * bytes.len().div_ceil(BLOCK_BYTES)) as u64,
            plain: bytes.len(),
        });
        Self { bytes, blocks }
    }

    /// The number of the block that began at `stored`.
    fn number(&self, stored: u64) -> ExpandResult<usize> {
        self.blocks
            .binary_search_by_key(&stored, |block| block.stored)
            .map_err(|_| ExpandError::Damaged("something points between the blocks of a table"))
    }

    /// Where `offset` in the block that began at `stored` is in the bytes of the table.
    pub(super) fn position(&self, stored: u64, offset: u16) -> ExpandResult<usize> {
        Ok(self.blocks[self.number(stored)?].plain + usize::from(offset))
    }

    /// Where the block that began at `stored` begins in the expanded table.
    pub(super) fn moved(&self, stored: u64) -> ExpandResult<u64> {
        let number = self.number(stored)?;
        Ok((self.blocks[number].plain + HEADER_BYTES * number) as u64)
    }

    /// [`Self::moved`] for a reference: the start of a block, and in the lowest 16 bits a place in it.
    pub(super) fn moved_reference(&self, reference: u64) -> ExpandResult<u64> {
        Ok(self.moved(reference >> 16)? << 16 | reference & 0xffff)
    }

    /// Its length in the expanded image.
    pub(super) fn length(&self) -> u64 {
        (self.bytes.len() + HEADER_BYTES * self.blocks.len().saturating_sub(1)) as u64
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.blocks
            .windows(2)
            .try_for_each(|pair| write_block(&self.bytes[pair[0].plain..pair[1].plain], out))
    }
}

/// A table whose entries are found by their numbers.
#[derive(Clone)]
pub(super) struct IndexedTable {
    /// Where its first block was.
    pub(super) first: u64,
    pub(super) bytes: Vec<u8>,
}

impl IndexedTable {
    /// The length of its blocks in the expanded image.
    pub(super) fn length(&self) -> u64 {
        (self.bytes.len() + HEADER_BYTES * self.bytes.len().div_ceil(BLOCK_BYTES)) as u64
    }

    pub(super) fn index_length(&self) -> u64 {
        8 * self.bytes.len().div_ceil(BLOCK_BYTES) as u64
    }

    pub(super) fn write_blocks(&self, out: &mut dyn Write) -> io::Result<()> {
        self.bytes.chunks(BLOCK_BYTES).try_for_each(|block| write_block(block, out))
    }

    /// Writes the index of blocks that begin at `start`.
    pub(super) fn write_index(&self, start: u64, out: &mut dyn Write) -> io::Result<()> {
        (0..self.index_length() / 8).try_for_each(|number| {
            let at = start + number * (BLOCK_BYTES + HEADER_BYTES) as u64;
            out.write_all(&at.to_le_bytes())
        })
    }
}

fn write_block(block: &[u8], out: &mut dyn Write) -> io::Result<()> {
    // At most 8192.
    #[allow(clippy::cast_possible_truncation)]
    let header = STORED | block.len() as u16;
    out.write_all(&header.to_le_bytes())?;
    out.write_all(block)
}
