//! Blocks of files and fragments: where each one is, how long it is in both forms, and their way into the expanded image.
//!
//! Equal files share blocks, so that blocks are a set. In the expanded image they keep their order and nothing lies
//! between them: then the blocks of a file follow each other as before.

use std::io::Write;
use std::ops::Range;
use std::sync::Mutex;

use base::parallel;
use zstd::bulk::Decompressor;

use super::error::{ExpandError, ExpandResult};
use super::metadata::read_exactly;
use crate::iso9660::Source;

/// The bit of a length that says that the block is not compressed.
pub(super) const STORED: u32 = 1 << 24;

/// The most blocks that are kept in memory, at 24 bytes each: images of 256 GiB with the usual 128 KiB in a block.
const MOST_BLOCKS: usize = 2 << 20;
/// How much one thread unpacks at a time; more where one block is larger.
const RUN_BYTES: u64 = 1 << 20;
/// How many such runs are in memory for each thread.
const RUNS_PER_THREAD: usize = 4;

/// A block in the compressed image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StoredBlock {
    start: u64,
    /// Its length, and whether it is compressed, as the format has both.
    word: u32,
    /// Its length in the expanded image.
    plain: u32,
}

impl StoredBlock {
    fn length(self) -> u32 {
        self.word & !STORED
    }

    fn end(self) -> u64 {
        self.start.saturating_add(self.length().into())
    }
}

/// Collects blocks in any order and more than once.
#[derive(Default)]
pub(super) struct BlockSet(Vec<StoredBlock>);

impl BlockSet {
    /// Adds the block at `start`; returns its length.
    pub(super) fn add(&mut self, start: u64, word: u32, plain: u32, block_size: u32) -> ExpandResult<u32> {
        let block = StoredBlock { start, word, plain };
        let whole = word & STORED == 0 || block.length() >= plain;
        if block.length() == 0 || block.length() > block_size || plain > block_size || !whole {
            return Err(ExpandError::Damaged("a block has a length that is not allowed"));
        }
        if self.0.len() == MOST_BLOCKS {
            self.settle();
            // So that this is not done for each block anew.
            if self.0.len() > MOST_BLOCKS / 2 {
                return Err(ExpandError::Unsupported("it has too many blocks".into()));
            }
        }
        self.0.push(block);
        Ok(block.length())
    }

    fn settle(&mut self) {
        self.0.sort_unstable();
        self.0.dedup();
    }

    /// Gives each block its place in an expanded image in which data begins at `begin`.
    pub(super) fn place(mut self, begin: u64) -> ExpandResult<Blocks> {
        self.settle();
        if self.0.first().is_some_and(|block| block.start < begin) {
            return Err(ExpandError::Damaged("data is where the superblock is"));
        }
        if self.0.windows(2).any(|pair| pair[0].end() > pair[1].start) {
            return Err(ExpandError::Damaged("blocks overlap, or one is said to have two lengths"));
        }
        let mut end = begin;
        let place = |block: StoredBlock| {
            let at = end;
            end += u64::from(block.plain);
            PlacedBlock { block, at }
        };
        let blocks = self.0.into_iter().map(place).collect();
        Ok(Blocks { blocks, end })
    }
}

#[derive(Clone, Copy)]
struct PlacedBlock {
    block: StoredBlock,
    at: u64,
}

/// All blocks of an image, by their starts.
pub(super) struct Blocks {
    blocks: Vec<PlacedBlock>,
    /// Where the last one ends in the expanded image.
    pub(super) end: u64,
}

impl Blocks {
    /// Where the block that began at `start` begins in the expanded image.
    pub(super) fn moved(&self, start: u64) -> ExpandResult<u64> {
        let found = self.blocks.binary_search_by_key(&start, |placed| placed.block.start);
        found.map(|number| self.blocks[number].at).map_err(|_| ExpandError::Damaged("a block is missing"))
    }

    /// Where the blocks are in the expanded image that lie in one of these places of the compressed one, in bytes.
    pub(super) fn touched(&self, places: &[Range<u64>]) -> Vec<Range<u64>> {
        let touched = |placed: &&PlacedBlock| is_touched(&(placed.block.start..placed.block.end()), places);
        self.blocks
            .iter()
            .filter(touched)
            .map(|placed| placed.at..placed.at + u64::from(placed.block.plain))
            .collect()
    }

    /// Unpacks everything in order, on `threads` processors.
    pub(super) fn write<S: Source>(
        &self,
        source: &S,
        length: u64,
        threads: usize,
        out: &mut dyn Write,
    ) -> ExpandResult<()> {
        let mut left = &self.blocks[..];
        while !left.is_empty() {
            let mut runs = Vec::new();
            while runs.len() < threads.max(1) * RUNS_PER_THREAD && !left.is_empty() {
                let (blocks, rest) = left.split_at(run(left));
                runs.push(Run { blocks, unpacked: Mutex::new(Ok(Vec::new())) });
                left = rest;
            }
            // Failures stay in their runs, so that the first one by place is reported whatever the threads do.
            let unpacked = parallel::for_each(&runs, threads, |run| {
                *parallel::locked(&run.unpacked) = unpack(run.blocks, source, length);
                Ok(())
            });
            debug_assert!(unpacked.is_ok(), "the work itself returns no error");
            for run in runs {
                let unpacked = run.unpacked.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
                out.write_all(&unpacked?).map_err(ExpandError::Write)?;
            }
        }
        Ok(())
    }
}

/// Whether one of these places has a byte in common with `data`.
pub(super) fn is_touched(data: &Range<u64>, places: &[Range<u64>]) -> bool {
    places.iter().any(|place| place.start < data.end && data.start < place.end)
}

/// Blocks that one thread unpacks.
struct Run<'b> {
    blocks: &'b [PlacedBlock],
    unpacked: Mutex<ExpandResult<Vec<u8>>>,
}

/// How many of the first of `blocks` make a run; at least one.
fn run(blocks: &[PlacedBlock]) -> usize {
    let Some(first) = blocks.first() else { return 0 };
    let fits = |placed: &PlacedBlock| placed.at + u64::from(placed.block.plain) - first.at <= RUN_BYTES;
    blocks.partition_point(fits).max(1)
}

fn unpack<S: Source>(blocks: &[PlacedBlock], source: &S, length: u64) -> ExpandResult<Vec<u8>> {
    let mut decompressor = Decompressor::new().map_err(|error| ExpandError::Read(0, error))?;
    let (mut unpacked, mut plain) = (Vec::new(), Vec::new());
    for PlacedBlock { block, .. } in blocks {
        let stored = read_exactly(source, length, block.start, block.length() as usize)?;
        let wanted = block.plain as usize;
        if block.word & STORED != 0 {
            unpacked.extend(stored.get(..wanted).ok_or(ExpandError::Block(block.start))?);
            continue;
        }
        // The longest block that the format has: only a fragment can hold more than is used of it.
        plain.resize(LONGEST_BLOCK, 0);
        let count = decompressor.decompress_to_buffer(&stored, &mut plain[..]);
        let count = count.map_err(|_| ExpandError::Block(block.start))?;
        unpacked
            .extend(plain.get(..wanted).filter(|_| wanted <= count).ok_or(ExpandError::Block(block.start))?);
    }
    Ok(unpacked)
}

const LONGEST_BLOCK: usize = 1 << 20;
