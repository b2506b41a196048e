//! Blocks of files and fragments: where each one is, how long it is in both forms, and their way into the expanded image.
//!
//! Equal files share blocks, so that blocks are a set. In the expanded image they keep their order and nothing lies
//! between them: then the blocks of a file follow each other as before.

use std::convert::Infallible;
use std::io::Write;
use std::ops::Range;

use base::parallel;
use zstd::bulk::Decompressor;

use super::error::{ExpandError, ExpandResult};
use super::metadata::read_into;
use crate::iso9660::Source;

/// The bit of a length that says that the block is not compressed.
pub(super) const STORED: u32 = 1 << 24;

/// The most blocks that are kept in memory, at 24 bytes each: images of 256 GiB with the usual 128 KiB in a block.
const MOST_BLOCKS: usize = 2 << 20;
/// How much one thread unpacks at a time; more where one block is larger.
const RUN_BYTES: u64 = 1 << 20;
/// How many such runs are worked on for each thread before the next ones. As many more that have been worked on are in memory.
const RUNS_PER_THREAD: usize = 2;

/// A block in the compressed image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StoredBlock {
    pub(super) start: u64,
    /// Its length, and whether it is compressed, as the format has both.
    pub(super) word: u32,
    /// Its length in the expanded image.
    pub(super) plain: u32,
}

impl StoredBlock {
    pub(super) fn length(self) -> u32 {
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

    /// The number of the block that begins at `at` of the expanded image.
    pub(super) fn number_at(&self, at: u64) -> ExpandResult<usize> {
        self.blocks
            .binary_search_by_key(&at, |placed| placed.at)
            .map_err(|_| ExpandError::Damaged("a block is missing"))
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    /// Whether both have blocks of the same lengths.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let plain = |blocks: &Self| blocks.blocks.iter().map(|placed| placed.block.plain).collect::<Vec<_>>();
        plain(self) == plain(other)
    }

    /// Unpacks everything in order, on `threads` processors.
    pub(super) fn write<S: Source>(
        &self,
        source: &S,
        length: u64,
        threads: usize,
        out: &mut dyn Write,
    ) -> ExpandResult<()> {
        let unpack = |blocks: &[StoredBlock]| {
            let mut unpacker = Unpacker::new(source, length)?;
            let mut unpacked = Vec::with_capacity(blocks.iter().map(|block| block.plain as usize).sum());
            for block in blocks {
                unpacked.extend(unpacker.unpack(*block)?);
            }
            Ok(unpacked)
        };
        self.in_order(threads, unpack, |unpacked: Vec<u8>| {
            out.write_all(&unpacked).map_err(ExpandError::Write)
        })
    }

    /// Does `work` for runs of blocks, on `threads` processors, and gives what comes of it to `then`, in the order of the blocks, while the
    /// next runs are worked on. The first failure by place is returned, whatever the threads do.
    pub(super) fn in_order<R: Send>(
        &self,
        threads: usize,
        work: impl Fn(&[StoredBlock]) -> ExpandResult<R> + Sync,
        mut then: impl FnMut(R) -> ExpandResult<()>,
    ) -> ExpandResult<()> {
        // A failure is a result, so that it ends no run before its own.
        let work = |run: &Vec<StoredBlock>| Ok::<_, Infallible>(work(run));
        let (mut left, mut done) = (&self.blocks[..], Vec::new());
        while !left.is_empty() || !done.is_empty() {
            let runs = next_runs(&mut left, threads.max(1) * RUNS_PER_THREAD);
            let worked_on = || parallel::map(&runs, threads, work);
            let (Ok(next), consumed) =
                parallel::beside(worked_on, || done.drain(..).try_for_each(|result| then(result?)));
            consumed?;
            done = next;
        }
        Ok(())
    }
}

/// Takes the first `count` runs of `left`.
fn next_runs(left: &mut &[PlacedBlock], count: usize) -> Vec<Vec<StoredBlock>> {
    let mut runs = Vec::new();
    while runs.len() < count && !left.is_empty() {
        let (blocks, rest) = left.split_at(run(left));
        runs.push(blocks.iter().map(|placed| placed.block).collect());
        *left = rest;
    }
    runs
}

/// Whether one of these places has a byte in common with `data`.
pub(super) fn is_touched(data: &Range<u64>, places: &[Range<u64>]) -> bool {
    places.iter().any(|place| place.start < data.end && data.start < place.end)
}

/// How many of the first of `blocks` make a run; at least one.
fn run(blocks: &[PlacedBlock]) -> usize {
    let Some(first) = blocks.first() else { return 0 };
    let fits = |placed: &PlacedBlock| placed.at + u64::from(placed.block.plain) - first.at <= RUN_BYTES;
    blocks.partition_point(fits).max(1)
}

/// Unpacks blocks of an image, one after the other.
pub(super) struct Unpacker<'s, S> {
    source: &'s S,
    /// Of the image.
    length: u64,
    decompressor: Decompressor<'static>,
    stored: Vec<u8>,
    plain: Vec<u8>,
}

impl<'s, S: Source> Unpacker<'s, S> {
    pub(super) fn new(source: &'s S, length: u64) -> ExpandResult<Self> {
        let decompressor = Decompressor::new().map_err(|error| ExpandError::Read(0, error))?;
        Ok(Self { source, length, decompressor, stored: Vec::new(), plain: Vec::new() })
    }

    /// What the expanded image has of the block.
    pub(super) fn unpack(&mut self, block: StoredBlock) -> ExpandResult<&[u8]> {
        read_into(&mut self.stored, self.source, self.length, block.start, block.length() as usize)?;
        let wanted = block.plain as usize;
        if block.word & STORED != 0 {
            return self.stored.get(..wanted).ok_or(ExpandError::Block(block.start));
        }
        // The longest block that the format has: only a fragment can hold more than is used of it.
        self.plain.resize(LONGEST_BLOCK, 0);
        let count = self.decompressor.decompress_to_buffer(&self.stored, &mut self.plain[..]);
        let count = count.map_err(|_| ExpandError::Block(block.start))?;
        self.plain.get(..wanted).filter(|_| wanted <= count).ok_or(ExpandError::Block(block.start))
    }
}

const LONGEST_BLOCK: usize = 1 << 20;
