//! The compressed form of an image, made from any other form of it.
//!
//! Data is compressed block by block. Tables stay as they are: they are some thousandths of an image, and places in them would depend on
//! how well what lies before them can be compressed, which in turn depends on these places. What comes out expands to the same bytes.
//!
//! Most blocks of an image are also those of the image that was made before it. They are taken from there: with the same level and the
//! same [version](zstd_version) of the compressor the bytes are those that compressing would give.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Mutex;

use base::parallel::locked;
use zstd::bulk::{Compressor, Decompressor};

use super::bytes::{narrow, put, u32_at, u64_at};
use super::data::{STORED, StoredBlock, Unpacker};
use super::error::{ExpandError, ExpandResult};
use super::expansion::{Expansion, FRAGMENT_BYTES};
use super::inodes::{FileInode, Inode, inode};
use super::metadata::read_exactly;
use super::superblock;
use super::tables::Tables;
use crate::iso9660::Source;

/// The version of the compressor in this program, such as `1.5.7`. Another may compress the same block to other bytes.
#[must_use]
pub fn zstd_version() -> &'static str {
    zstd::zstd_safe::version_string()
}

/// How blocks are compressed, and the image whose compressed blocks are taken over.
pub struct Compression<'k, K> {
    level: i32,
    known: Option<KnownBlocks<'k, K>>,
}

impl<K> fmt::Debug for Compression<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.as_ref().map_or(0, |known| known.blocks.len());
        f.debug_struct("Compression").field("level", &self.level).field("known", &known).finish()
    }
}

/// The blocks of a compressed image by what they unpack to.
struct KnownBlocks<'k, K> {
    image: &'k K,
    /// Of the image.
    length: u64,
    blocks: HashMap<BlockDigest, StoredBlock>,
}

/// BLAKE3 of a block. It never leaves this process, and is several times as quick as SHA-256.
type BlockDigest = [u8; blake3::OUT_LEN];

/// Blocks as the compressed image has them, one after the other.
#[derive(Default)]
struct PackedBlocks {
    bytes: Vec<u8>,
    /// The length of each, and whether it is compressed, as the format has both.
    words: Vec<u32>,
}

/// Where the compressed image has a block.
struct PackedPlace {
    start: u64,
    word: u32,
}

impl<'k, K: Source> Compression<'k, K> {
    /// By zstd at a level from 1 to 22.
    #[must_use]
    pub const fn at_level(level: i32) -> Self {
        Self { level, known: None }
    }

    /// The same with the blocks of `image`, which has been made in this way. All of it is unpacked once, on `threads` processors, so that no
    /// block of it has to be trusted.
    pub fn reusing(level: i32, image: &'k K, threads: usize) -> ExpandResult<Self> {
        Ok(Self { level, known: Some(KnownBlocks::of(image, threads)?) })
    }

    /// Writes the compressed form of an image to the start of `out`, in the same bytes for any number of threads and whatever blocks were
    /// known. Each block that was not known is unpacked again and compared.
    pub fn write<S: Source, W: Write + Seek>(
        &self,
        image: &Expansion<'_, S>,
        threads: usize,
        out: &mut W,
    ) -> ExpandResult<()> {
        out.seek(SeekFrom::Start(superblock::LENGTH)).map_err(ExpandError::Write)?;
        let (mut places, mut end) = (Vec::with_capacity(image.blocks.count()), superblock::LENGTH);
        let pack = |blocks: &[StoredBlock]| self.pack(image, blocks);
        image.blocks.in_order(threads, pack, |packed: PackedBlocks| {
            for word in packed.words {
                places.push(PackedPlace { start: end, word });
                end += u64::from(word & !STORED);
            }
            out.write_all(&packed.bytes).map_err(ExpandError::Write)
        })?;
        let mut tables = image.tables.clone();
        move_fragments(&mut tables, image, &places)?;
        move_files(&mut tables, image, &places)?;
        tables.place(end);
        tables.write(out).map_err(ExpandError::Write)?;
        out.seek(SeekFrom::Start(0)).map_err(ExpandError::Write)?;
        out.write_all(&tables.superblock.compressed()?).map_err(ExpandError::Write)
    }

    fn pack<S: Source>(
        &self,
        image: &Expansion<'_, S>,
        blocks: &[StoredBlock],
    ) -> ExpandResult<PackedBlocks> {
        let mut unpacker = Unpacker::new(image.source, image.length)?;
        let mut packer = Packer::new(self.level).map_err(ExpandError::Compress)?;
        let mut packed = PackedBlocks::default();
        for block in blocks {
            let plain = unpacker.unpack(*block)?;
            if let Some((stored, word)) = self.known.as_ref().and_then(|known| known.find(plain)) {
                packed.bytes.extend(stored);
                packed.words.push(word);
                continue;
            }
            let (stored, word) = packer.pack(plain, block.plain).map_err(ExpandError::Compress)?;
            packed.bytes.extend(stored);
            packed.words.push(word);
        }
        Ok(packed)
    }
}

impl<'k, K: Source> KnownBlocks<'k, K> {
    fn of(image: &'k K, threads: usize) -> ExpandResult<Self> {
        let plan = Expansion::plan(image)?;
        let blocks = Mutex::new(HashMap::with_capacity(plan.blocks.count()));
        let look = |run: &[StoredBlock]| {
            let mut unpacker = Unpacker::new(image, plan.length)?;
            for block in run {
                let digest = digest(unpacker.unpack(*block)?);
                locked(&blocks).insert(digest, *block);
            }
            Ok(())
        };
        plan.blocks.in_order(threads, look, |()| Ok(()))?;
        let length = plan.length;
        Ok(Self { image, length, blocks: std::mem::take(&mut *locked(&blocks)) })
    }

    /// How this block is stored there; none as well if it cannot be read any more.
    fn find(&self, plain: &[u8]) -> Option<(Vec<u8>, u32)> {
        let block = self.blocks.get(&digest(plain))?;
        let stored = read_exactly(self.image, self.length, block.start, block.length() as usize).ok()?;
        Some((stored, block.word))
    }
}

fn digest(block: &[u8]) -> BlockDigest {
    *blake3::hash(block).as_bytes()
}

/// Compresses blocks, one after the other.
struct Packer {
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
    packed: Vec<u8>,
    unpacked: Vec<u8>,
}

impl Packer {
    fn new(level: i32) -> io::Result<Self> {
        Ok(Self {
            compressor: Compressor::new(level)?,
            decompressor: Decompressor::new()?,
            packed: Vec::new(),
            unpacked: Vec::new(),
        })
    }

    /// The block as it is stored, and its word: compressed where that is shorter. `length` is that of `plain`.
    fn pack<'b>(&'b mut self, plain: &'b [u8], length: u32) -> io::Result<(&'b [u8], u32)> {
        self.packed.resize(zstd::zstd_safe::compress_bound(plain.len()), 0);
        let count = self.compressor.compress_to_buffer(plain, &mut self.packed[..])?;
        let packed = &self.packed[..count];
        match u32::try_from(count) {
            Ok(word) if word < length => {
                self.unpacked.resize(plain.len(), 0);
                let unpacked = self.decompressor.decompress_to_buffer(packed, &mut self.unpacked[..])?;
                match self.unpacked[..unpacked] == *plain {
                    true => Ok((packed, word)),
                    false => Err(io::Error::other("a compressed block does not unpack to what it was")),
                }
            }
            _ => Ok((plain, length | STORED)),
        }
    }
}

/// Lets the fragment table name fragments by their new places and lengths.
fn move_fragments<S>(
    tables: &mut Tables,
    image: &Expansion<'_, S>,
    places: &[PackedPlace],
) -> ExpandResult<()> {
    let Some(fragments) = &mut tables.fragments else { return Ok(()) };
    for at in (0..fragments.bytes.len()).step_by(FRAGMENT_BYTES) {
        // No file uses this one.
        if u32_at(&fragments.bytes, at + 8)? & !STORED == 0 {
            continue;
        }
        let place = place(places, image.blocks.number_at(u64_at(&fragments.bytes, at)?)?)?;
        put(&mut fragments.bytes, at, place.start.to_le_bytes())?;
        put(&mut fragments.bytes, at + 8, place.word.to_le_bytes())?;
    }
    Ok(())
}

/// Lets inodes name blocks of files by their new places and lengths.
fn move_files<S>(tables: &mut Tables, image: &Expansion<'_, S>, places: &[PackedPlace]) -> ExpandResult<()> {
    let (inodes, mut at) = (&mut tables.inodes.bytes, 0);
    while at < inodes.len() {
        let (inode, next) = inode(inodes, at, tables.superblock.block_size)?;
        if let Inode::File(file) = inode {
            move_file(inodes, &file, image, places)?;
        }
        at = next;
    }
    Ok(())
}

fn move_file<S>(
    inodes: &mut [u8],
    file: &FileInode,
    image: &Expansion<'_, S>,
    places: &[PackedPlace],
) -> ExpandResult<()> {
    let mut blocks = Vec::new();
    for at in file.lengths.clone().step_by(4) {
        // The others are holes.
        if u32_at(inodes, at)? != 0 {
            blocks.push(at);
        }
    }
    if blocks.is_empty() {
        return Ok(());
    }
    let first = image.blocks.number_at(file.start)?;
    for (number, at) in (first..).zip(blocks) {
        put(inodes, at, place(places, number)?.word.to_le_bytes())?;
    }
    let start = place(places, first)?.start;
    match file.wide {
        true => put(inodes, file.at_start, start.to_le_bytes()),
        false => put(inodes, file.at_start, narrow(start)?.to_le_bytes()),
    }
}

fn place(places: &[PackedPlace], number: usize) -> ExpandResult<&PackedPlace> {
    places.get(number).ok_or(ExpandError::Damaged("a file has more blocks than the image"))
}
