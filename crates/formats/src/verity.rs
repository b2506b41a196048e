//! The hash tree of dm-verity, in the on-disk format of `veritysetup` (version 1, SHA-256, blocks of 4096 bytes).
//!
//! A tree is made while the data streams by, and is small: 1/127 of it. Its root hash says of every byte of the data
//! whether it is right. Sources: the kernel's `Documentation/admin-guide/device-mapper/verity.rst`, and cryptsetup's
//! "DMVerity" page for the superblock.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Read};

use base::digest::{Digest, Hasher};
use base::parallel;
use uuid::Uuid;

/// Length of a block of data and of a block of hashes, in bytes.
pub const BLOCK_BYTES: usize = 4096;
const HASH_BYTES: usize = 32;
const HASHES_PER_BLOCK: usize = BLOCK_BYTES / HASH_BYTES;
/// How many bytes a thread hashes before it takes the next ones. Below twice as many, starting threads would take longer.
const BYTES_PER_THREAD: usize = 256 << 10;
/// Where the superblock has the number of blocks of data.
const BLOCKS_AT: usize = 72;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerityParameters {
    /// Hashed before each block.
    pub salt: [u8; 32],
    /// Stored in the superblock only.
    pub uuid: Uuid,
}

impl VerityParameters {
    /// Those of an image with this digest: the same image gives the same tree.
    #[must_use]
    pub fn of_image(image: Digest) -> Self {
        Self { salt: *image.as_bytes(), uuid: Uuid::new_v5(&Uuid::NAMESPACE_OID, image.as_bytes()) }
    }
}

/// Takes the data piece by piece.
#[allow(missing_debug_implementations)]
pub struct VerityBuilder {
    parameters: VerityParameters,
    threads: usize,
    /// The bytes of the current block so far.
    rest: Vec<u8>,
    leaves: Vec<u8>,
}

/// The superblock and the hashes, as they are stored behind the data.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_debug_implementations)]
pub struct VerityTree {
    /// Whole blocks: the superblock, then the levels, the root's first.
    pub bytes: Vec<u8>,
    pub root: Digest,
    salt: [u8; 32],
}

impl VerityTree {
    pub fn of_image(image: Digest, mut reader: impl Read) -> io::Result<Self> {
        let mut builder = VerityBuilder::new(VerityParameters::of_image(image));
        io::copy(&mut reader, &mut builder)?;
        Ok(builder.finish())
    }
}

impl VerityTree {
    /// The tree over `length` bytes of data with the root hash `root`, of its stored form, which anybody may have changed; none if that has
    /// other hashes of blocks.
    #[must_use]
    pub fn of_stored(stored: &[u8], parameters: VerityParameters, length: u64, root: Digest) -> Option<Self> {
        let blocks = usize::try_from(length.div_ceil(BLOCK_BYTES as u64)).ok()?;
        if blocks == 1 {
            return Some(Self { bytes: superblock(parameters, 1), root, salt: parameters.salt });
        }
        let start = stored.len().checked_sub(leaves_bytes(blocks))?;
        let leaves = stored.get(start..start + blocks * HASH_BYTES)?.to_vec();
        let tree = VerityBuilder { leaves, ..VerityBuilder::new(parameters) }.finish();
        (tree.root == root).then_some(tree)
    }

    /// Where the first block of data begins, in bytes, of which `other` has another hash, in a tree of the same parameters; none where
    /// all are the same.
    #[must_use]
    pub fn first_other_block(&self, other: &Self) -> Option<u64> {
        self.other_blocks(other).next().map(|block| block * BLOCK_BYTES as u64)
    }

    /// The numbers of the blocks of data of which `other` has another hash, in a tree of the same parameters.
    pub fn other_blocks(&self, other: &Self) -> impl Iterator<Item = u64> {
        let blocks = self.blocks().max(other.blocks());
        (0..blocks).filter(|block| self.leaf(*block) != other.leaf(*block)).map(|block| block as u64)
    }

    /// Whether the block of data with this number has these bytes.
    #[must_use]
    pub fn has_block(&self, block: u64, data: &[u8]) -> bool {
        let expected = usize::try_from(block).ok().and_then(|block| self.leaf(block));
        expected == Some(hash(&self.salt, data).as_bytes())
    }

    fn leaf(&self, block: usize) -> Option<&[u8]> {
        if block >= self.blocks() {
            return None;
        }
        if self.blocks() == 1 {
            return Some(self.root.as_bytes());
        }
        self.leaves().chunks(HASH_BYTES).nth(block)
    }

    /// The hashes of the blocks of data, filled up to whole blocks; none of a single block, whose hash is the root.
    fn leaves(&self) -> &[u8] {
        let level = leaves_bytes(self.blocks());
        self.bytes.get(self.bytes.len().saturating_sub(level).max(BLOCK_BYTES)..).unwrap_or_default()
    }

    /// How many blocks of data it is over.
    fn blocks(&self) -> usize {
        let field = self.bytes.get(BLOCKS_AT..BLOCKS_AT + 8).and_then(|bytes| bytes.try_into().ok());
        field.map(u64::from_le_bytes).and_then(|blocks| blocks.try_into().ok()).unwrap_or_default()
    }
}

impl io::Write for VerityBuilder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl VerityBuilder {
    #[must_use]
    pub fn new(parameters: VerityParameters) -> Self {
        Self { parameters, threads: 1, rest: Vec::new(), leaves: Vec::new() }
    }

    /// The same on up to `threads` processors, where pieces of some MiB come. The tree is the same for any number of them.
    #[must_use]
    pub fn on_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Takes the next bytes of the data.
    pub fn update(&mut self, mut bytes: &[u8]) {
        if !self.rest.is_empty() {
            let taken = bytes.len().min(BLOCK_BYTES - self.rest.len());
            self.rest.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.rest.len() < BLOCK_BYTES {
                return;
            }
            let block = std::mem::take(&mut self.rest);
            self.leaf(&block);
        }
        let (blocks, rest) = bytes.split_at(bytes.len() - bytes.len() % BLOCK_BYTES);
        if self.threads > 1 && blocks.len() >= 2 * BYTES_PER_THREAD {
            self.leaves_on_threads(blocks);
        } else {
            blocks.chunks(BLOCK_BYTES).for_each(|block| self.leaf(block));
        }
        self.rest.extend_from_slice(rest);
    }

    fn leaves_on_threads(&mut self, blocks: &[u8]) {
        let salt = self.parameters.salt;
        let hashes = |part: &&[u8]| -> Result<Vec<u8>, Infallible> {
            Ok(part.chunks(BLOCK_BYTES).flat_map(|block| *hash(&salt, block).as_bytes()).collect())
        };
        let parts: Vec<_> = blocks.chunks(BYTES_PER_THREAD).collect();
        let Ok(made) = parallel::map(&parts, self.threads, hashes);
        made.iter().for_each(|leaves| self.leaves.extend_from_slice(leaves));
    }

    fn leaf(&mut self, block: &[u8]) {
        self.leaves.extend_from_slice(hash(&self.parameters.salt, block).as_bytes());
    }

    /// The tree over everything that came. A last block that is not full counts as filled up with zeros.
    #[must_use]
    pub fn finish(mut self) -> VerityTree {
        if !self.rest.is_empty() {
            let mut block = std::mem::take(&mut self.rest);
            block.resize(BLOCK_BYTES, 0);
            self.leaf(&block);
        }
        let salt = self.parameters.salt;
        let blocks = (self.leaves.len() / HASH_BYTES) as u64;
        let mut levels = vec![self.leaves];
        while levels.last().is_some_and(|level| level.len() > HASH_BYTES) {
            let level = levels.last_mut().map(pad).unwrap_or_default();
            levels.push(
                level.chunks_exact(BLOCK_BYTES).flat_map(|block| *hash(&salt, block).as_bytes()).collect(),
            );
        }
        // The last level is the root hash alone, which is not stored. A single block of data has no other level.
        let root = levels.pop().and_then(|level| level.try_into().ok()).map(Digest::from_bytes);
        let mut bytes = superblock(self.parameters, blocks);
        levels.iter().rev().for_each(|level| bytes.extend_from_slice(level));
        VerityTree { bytes, root: root.unwrap_or_else(|| hash(&salt, &[])), salt }
    }
}

/// Compares a stored tree with the hash of its root while it streams by, which needs none of the data: the hash of each block of hashes is in
/// the level above. Keeps at most 1/64 of the tree in memory.
#[allow(missing_debug_implementations)]
pub struct VerityTreeCheck {
    salt: [u8; 32],
    superblock: Vec<u8>,
    /// How many blocks the levels have that are still to come, the one that is read now first.
    levels: VecDeque<u64>,
    /// The hashes of the blocks of this level.
    expected: Vec<u8>,
    /// How many blocks of this level were right.
    number: usize,
    /// They themselves, the hashes of the next level; nothing where there is none.
    next: Vec<u8>,
    block: Vec<u8>,
    /// How many blocks were right.
    right: u64,
}

impl VerityTreeCheck {
    /// For the tree over `length` bytes of data with the root hash `root`.
    #[must_use]
    pub fn new(parameters: VerityParameters, length: u64, root: Digest) -> Self {
        let blocks = length.div_ceil(BLOCK_BYTES as u64);
        Self {
            salt: parameters.salt,
            superblock: superblock(parameters, blocks),
            levels: levels(blocks).into(),
            expected: root.as_bytes().to_vec(),
            number: 0,
            next: Vec::new(),
            block: Vec::new(),
            right: 0,
        }
    }

    /// Takes the next bytes of the tree; returns where its first wrong block begins, in bytes.
    pub fn update(&mut self, mut bytes: &[u8]) -> Option<u64> {
        while !bytes.is_empty() {
            let taken = bytes.len().min(BLOCK_BYTES - self.block.len());
            self.block.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.block.len() == BLOCK_BYTES {
                let block = std::mem::take(&mut self.block);
                if !self.is_right(&block) {
                    return Some(self.right * BLOCK_BYTES as u64);
                }
                self.right += 1;
            }
        }
        None
    }

    fn is_right(&mut self, block: &[u8]) -> bool {
        if self.right == 0 {
            return block == self.superblock;
        }
        let expected = self.expected.chunks_exact(HASH_BYTES).nth(self.number);
        let Some(blocks) = self.levels.front().copied() else { return false };
        if expected != Some(hash(&self.salt, block).as_bytes()) {
            return false;
        }
        self.number += 1;
        if self.levels.len() > 1 {
            self.next.extend_from_slice(block);
        }
        if self.number as u64 == blocks {
            self.levels.pop_front();
            self.number = 0;
            self.expected = std::mem::take(&mut self.next);
        }
        true
    }
}

/// How many blocks each level of the tree over so many blocks of data has, the root's first. A single block has no level.
fn levels(mut blocks: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    while blocks > 1 {
        blocks = blocks.div_ceil(HASHES_PER_BLOCK as u64);
        levels.push(blocks);
    }
    levels.reverse();
    levels
}

/// How many bytes the level of the hashes of so many blocks of data takes up.
fn leaves_bytes(blocks: usize) -> usize {
    blocks.div_ceil(HASHES_PER_BLOCK) * BLOCK_BYTES
}

/// Fills a level up to whole blocks and returns a copy of it.
fn pad(level: &mut Vec<u8>) -> Vec<u8> {
    level.resize(level.len().next_multiple_of(HASHES_PER_BLOCK * HASH_BYTES), 0);
    level.clone()
}

fn hash(salt: &[u8], block: &[u8]) -> Digest {
    let mut hasher = Hasher::default();
    hasher.update(salt);
    hasher.update(block);
    hasher.finish()
}

fn superblock(parameters: VerityParameters, blocks: u64) -> Vec<u8> {
    let mut bytes = b"verity\0\0".to_vec();
    bytes.extend(1_u32.to_le_bytes()); // version of the superblock
    bytes.extend(1_u32.to_le_bytes()); // type: the salt comes first
    bytes.extend(parameters.uuid.as_bytes());
    bytes.extend(b"sha256");
    bytes.resize(64, 0);
    let block = u32::try_from(BLOCK_BYTES).unwrap_or_default().to_le_bytes();
    bytes.extend(block); // of data
    bytes.extend(block); // of hashes
    bytes.extend(blocks.to_le_bytes());
    bytes.extend(u16::try_from(parameters.salt.len()).unwrap_or_default().to_le_bytes());
    bytes.extend([0; 6]);
    bytes.extend(parameters.salt);
    bytes.resize(BLOCK_BYTES, 0);
    bytes
}

/// How many bytes a tree over `data` bytes has, with its superblock.
#[must_use]
pub fn tree_bytes(data: u64) -> u64 {
    let block = BLOCK_BYTES as u64;
    (1 + levels(data.div_ceil(block)).iter().sum::<u64>()) * block
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::command::{Invocation, Runner, SystemRunner};

    fn tree(data: &[u8], pieces: usize) -> VerityTree {
        let mut builder = VerityBuilder::new(VerityParameters::of_image(Digest::of(data)));
        data.chunks(pieces).for_each(|piece| builder.update(piece));
        builder.finish()
    }

    fn data(blocks: usize) -> Vec<u8> {
        (0..blocks * BLOCK_BYTES).map(|at| (at * 31 + (at >> 8) * 7 + (at >> 17)) as u8).collect()
    }

    #[test]
    fn veritysetup_accepts_the_tree_and_finds_a_flipped_bit() {
        for blocks in [1, 2, 128, 129, 128 * 128 + 1] {
            let data = data(blocks);
            let tree = tree(&data, 1 << 20);
            let file = tempfile::NamedTempFile::new().unwrap();
            let verify = |data: &[u8]| {
                std::fs::write(file.path(), [data, &tree.bytes].concat()).unwrap();
                let offset = format!("--hash-offset={}", data.len());
                let request = Invocation::new("veritysetup").arg("verify");
                let request =
                    request.arg(file.path()).arg(file.path()).arg(tree.root.to_string()).arg(offset);
                SystemRunner.run(&request)
            };
            verify(&data).unwrap();
            let mut flipped = data.clone();
            flipped[data.len() / 2] ^= 1;
            assert!(verify(&flipped).is_err(), "{blocks}");
            assert_eq!(tree.bytes.len() as u64, tree_bytes(data.len() as u64), "{blocks}");
        }
    }

    #[test]
    fn the_first_wrong_block_is_told() {
        for blocks in [1, 2, 128, 129, 300] {
            let whole = data(blocks);
            let made = |data: &[u8]| {
                let mut builder = VerityBuilder::new(VerityParameters::of_image(Digest::of(b"the image")));
                builder.update(data);
                builder.finish()
            };
            assert_eq!(made(&whole).first_other_block(&made(&whole)), None);
            for block in [0, blocks / 2, blocks - 1] {
                let mut wrong = whole.clone();
                (block..blocks).for_each(|block| wrong[block * BLOCK_BYTES + 77] ^= 1);
                let place = made(&wrong).first_other_block(&made(&whole));
                assert_eq!(place, Some((block * BLOCK_BYTES) as u64), "{blocks}");
            }
        }
    }

    #[test]
    fn a_stored_tree_counts_only_with_all_of_its_hashes() {
        for blocks in [1, 2, 128, 129, 300] {
            let (whole, parameters) = (data(blocks), VerityParameters::of_image(Digest::of(b"the image")));
            let mut builder = VerityBuilder::new(parameters);
            builder.update(&whole);
            let tree = builder.finish();
            let length = whole.len() as u64;
            let stored = |bytes: &[u8]| VerityTree::of_stored(bytes, parameters, length, tree.root);
            assert!(stored(&tree.bytes).is_some_and(|found| found == tree), "{blocks}");
            for block in [0, blocks / 2, blocks - 1] {
                let at = block * BLOCK_BYTES;
                assert!(tree.has_block(block as u64, &whole[at..at + BLOCK_BYTES]), "{blocks}");
                assert!(!tree.has_block(block as u64, &[1; BLOCK_BYTES]), "{blocks}");
            }
            assert!(!tree.has_block(blocks as u64, &whole[..BLOCK_BYTES]), "{blocks}");
            if blocks > 1 {
                let mut wrong = tree.bytes.clone();
                let last = wrong.len() - leaves_bytes(blocks) + blocks * HASH_BYTES - 1;
                wrong[last] ^= 1;
                assert!(stored(&wrong).is_none() && stored(&tree.bytes[..1000]).is_none(), "{blocks}");
                // The levels above are made again, and what fills up the last block of hashes does not count.
                let mut upper = tree.bytes.clone();
                upper[BLOCK_BYTES] ^= u8::from(blocks > 128);
                assert!(stored(&upper).is_some_and(|found| found == tree), "{blocks}");
            }
        }
    }

    #[test]
    fn a_stored_tree_is_compared_with_its_root_hash_alone_block_by_block() {
        for blocks in [1, 2, 128, 129, 300, 128 * 128 + 1] {
            let (whole, parameters) = (data(blocks), VerityParameters::of_image(Digest::of(b"the image")));
            let mut builder = VerityBuilder::new(parameters);
            builder.update(&whole);
            let tree = builder.finish();
            let compared = |stored: &[u8], pieces: usize| {
                let mut check = VerityTreeCheck::new(parameters, whole.len() as u64, tree.root);
                stored.chunks(pieces).find_map(|piece| check.update(piece))
            };
            for pieces in [1000, 4096, 1 << 20] {
                assert_eq!(compared(&tree.bytes, pieces), None, "{blocks}");
            }
            let stored = tree.bytes.len() / BLOCK_BYTES;
            for block in [0, 1, stored / 2, stored - 1].into_iter().filter(|block| *block < stored) {
                let mut wrong = tree.bytes.clone();
                wrong[block * BLOCK_BYTES + 4095] ^= 1;
                assert_eq!(compared(&wrong, 5000), Some((block * BLOCK_BYTES) as u64), "{blocks}");
            }
            let longer = [&tree.bytes[..], &[0; BLOCK_BYTES]].concat();
            assert_eq!(compared(&longer, 1 << 20), Some(tree.bytes.len() as u64), "{blocks}");
            let mut other = VerityTreeCheck::new(parameters, whole.len() as u64, Digest::of(b"another root"));
            assert_eq!(other.update(&tree.bytes), (blocks > 1).then_some(BLOCK_BYTES as u64));
        }
    }

    #[test]
    fn every_wrong_block_is_told() {
        let whole = data(300);
        let mut wrong = whole.clone();
        let places = [0, 128, 299];
        places.iter().for_each(|block| wrong[block * BLOCK_BYTES + 77] ^= 1);
        let made = |data: &[u8]| {
            let mut builder = VerityBuilder::new(VerityParameters::of_image(Digest::of(b"the image")));
            builder.update(data);
            builder.finish()
        };
        let found: Vec<_> = made(&whole).other_blocks(&made(&wrong)).collect();
        assert_eq!(found, places.map(|block| block as u64));
    }

    #[test]
    fn neither_the_pieces_nor_the_threads_matter() {
        let data = data(300);
        let whole = tree(&data, data.len());
        let parameters = VerityParameters::of_image(Digest::of(&data));
        for pieces in [1000, 4095, 4096, 4097, 100_000, 2 * BYTES_PER_THREAD, 1_000_000, data.len()] {
            assert!(tree(&data, pieces) == whole, "{pieces}");
            for threads in [2, 3, 16] {
                let mut builder = VerityBuilder::new(parameters).on_threads(threads);
                data.chunks(pieces).for_each(|piece| builder.update(piece));
                assert!(builder.finish() == whole, "{pieces} on {threads}");
            }
        }
        assert_ne!(tree(&data[..data.len() - 1], 4096).root, whole.root);
    }
}
