//! A part of a disk as a stream of bytes, for writers of tables and file systems that do not align to sectors.
//!
//! Changes collect in memory, a few megabytes at most, and go to the disk in whole blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};

use super::device::{self, AlignedBuffer, BlockDevice};

const BLOCK_BYTES: u64 = 256 << 10;

const BLOCKS_MAX: usize = 32;

struct Block {
    bytes: AlignedBuffer,
    dirty: bool,
    used: u64,
}

pub(crate) struct BlockCache<'a> {
    device: &'a dyn BlockDevice,
    start: u64,
    length: u64,
    position: u64,
    blocks: BTreeMap<u64, Block>,
    clock: u64,
    /// The blocks that have been written so far, where old content does not matter: all others read as zero.
    fresh: Option<BTreeSet<u64>>,
    /// The first error of a write. It stays: `fatfs` drops errors when it closes files, and a later flush that succeeds must not
    /// hide them.
    broken: Option<WriteFault>,
}

impl<'a> BlockCache<'a> {
    /// The bytes `start .. start + length`; multiples of the sector size.
    pub(crate) fn new(device: &'a dyn BlockDevice, start: u64, length: u64) -> Self {
        let (position, blocks, clock) = (0, BTreeMap::new(), 0);
        Self { device, start, length, position, blocks, clock, fresh: None, broken: None }
    }

    /// Like [`BlockCache::new`], with the old content taken for zeros: never read, and overwritten by zeros in the blocks that are
    /// touched.
    pub(crate) fn fresh(device: &'a dyn BlockDevice, start: u64, length: u64) -> Self {
        Self { fresh: Some(BTreeSet::new()), ..Self::new(device, start, length) }
    }

    fn block(&mut self, index: u64) -> io::Result<&mut Block> {
        self.clock += 1;
        if !self.blocks.contains_key(&index) {
            self.make_room()?;
            let offset = index * BLOCK_BYTES;
            let length = usize::try_from(BLOCK_BYTES.min(self.length - offset)).map_err(io::Error::other)?;
            let mut bytes = AlignedBuffer::new(length);
            let known_zero = self.fresh.as_ref().is_some_and(|written| !written.contains(&index));
            if !known_zero {
                device::read(self.device, self.start + offset, &mut bytes).map_err(as_io_error)?;
            }
            self.blocks.insert(index, Block { bytes, dirty: false, used: 0 });
        }
        let clock = self.clock;
        let block = self.blocks.get_mut(&index).ok_or_else(|| io::Error::other("a block went missing"))?;
        block.used = clock;
        Ok(block)
    }

    fn make_room(&mut self) -> io::Result<()> {
        while self.blocks.len() >= BLOCKS_MAX {
            let oldest = self.blocks.iter().min_by_key(|(_, block)| block.used).map(|(index, _)| *index);
            let Some(oldest) = oldest else { break };
            self.write_back(oldest)?;
            self.blocks.remove(&oldest);
        }
        Ok(())
    }

    fn write_back(&mut self, index: u64) -> io::Result<()> {
        if let Some(broken) = &self.broken {
            return Err(broken.to_io_error(self.device));
        }
        if let Some(block) = self.blocks.get_mut(&index).filter(|block| block.dirty) {
            let offset = self.start + index * BLOCK_BYTES;
            if let Err(error) = self.device.write_at(offset, &block.bytes) {
                let (length, kind, code) = (block.bytes.len(), error.kind(), error.raw_os_error());
                self.broken = Some(WriteFault { offset, length, kind, code });
                return Err(io::Error::other(device::cannot_write(self.device, offset, length, error)));
            }
            block.dirty = false;
            if let Some(written) = &mut self.fresh {
                written.insert(index);
            }
        }
        Ok(())
    }

    /// The block at the position, the place in it, and how many of `wanted` bytes it has from there.
    fn block_at_position(&self, wanted: usize) -> (u64, usize, usize) {
        let (index, within) = (self.position / BLOCK_BYTES, self.position % BLOCK_BYTES);
        let left = self.length.saturating_sub(self.position).min(BLOCK_BYTES - within);
        let count = wanted.min(usize::try_from(left).unwrap_or(usize::MAX));
        (index, usize::try_from(within).unwrap_or(usize::MAX), count)
    }
}

#[derive(Clone, Copy)]
struct WriteFault {
    offset: u64,
    length: usize,
    kind: io::ErrorKind,
    code: Option<i32>,
}

impl WriteFault {
    fn to_io_error(self, device: &dyn BlockDevice) -> io::Error {
        let error = self.code.map_or(io::Error::from(self.kind), io::Error::from_raw_os_error);
        io::Error::other(device::cannot_write(device, self.offset, self.length, error))
    }
}

/// The error as an `io::Error`, for code that reads streams; the failure can be found in it again.
fn as_io_error(error: anyhow::Error) -> io::Error {
    io::Error::other(error.reallocate_into_boxed_dyn_error_without_backtrace())
}

impl fmt::Debug for BlockCache<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("start", &self.start).field("length", &self.length).finish()
    }
}

impl Read for BlockCache<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (index, within, count) = self.block_at_position(buffer.len());
        if count > 0 {
            let block = self.block(index)?;
            buffer[..count].copy_from_slice(&block.bytes[within..within + count]);
            self.position += count as u64;
        }
        Ok(count)
    }
}

impl Write for BlockCache<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (index, within, count) = self.block_at_position(bytes.len());
        if count > 0 {
            let block = self.block(index)?;
            block.bytes[within..within + count].copy_from_slice(&bytes[..count]);
            block.dirty = true;
            self.position += count as u64;
        }
        Ok(count)
    }

    /// Writes everything to the device, the highest address first: the start of a table or file system, which gives meaning to
    /// the rest, comes last. Not a barrier.
    fn flush(&mut self) -> io::Result<()> {
        let indexes: Vec<_> = self.blocks.keys().rev().copied().collect();
        indexes.into_iter().try_for_each(|index| self.write_back(index))
    }
}

impl Seek for BlockCache<'_> {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        self.position = formats::fat::seek_to(target, self.position, self.length)?;
        Ok(self.position)
    }
}
