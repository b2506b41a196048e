//! A small squashfs, for tests that cannot wait for `mksquashfs` or run where there is none.

use base::digest::Digest;
use formats::squashfs::Expansion;
use formats::verity::VerityTree;
use model::release::ExpandedImage;

const BLOCK_BYTES: usize = 128 << 10;
const ABSENT: u64 = u64::MAX;
/// The bit of a data block, and of a block of metadata, that says it is not compressed.
const STORED_DATA: u32 = 1 << 24;
const STORED_METADATA: u16 = 1 << 15;

/// An image whose root directory has one file, `file`, with this content. Blocks are compressed where that makes them shorter.
///
/// # Panics
/// With more than 200 MiB, whose inode does not fit one block of metadata.
#[must_use]
pub fn image(content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 200 << 20, "one block of metadata");
    let mut image = vec![0; 96];
    let mut inodes = Vec::new();
    put(&mut inodes, &[2_u16, 0o644, 0, 0]);
    let lengths = [0, 1, 96, u32::MAX, 0, u32::try_from(content.len()).unwrap()];
    lengths.iter().for_each(|number: &u32| inodes.extend(number.to_le_bytes()));
    for block in content.chunks(BLOCK_BYTES) {
        let packed = zstd::bulk::compress(block, 3).unwrap();
        let (bytes, flag) = if packed.len() < block.len() { (&packed[..], 0) } else { (block, STORED_DATA) };
        image.extend(bytes);
        inodes.extend((u32::try_from(bytes.len()).unwrap() | flag).to_le_bytes());
    }
    let mut listing = Vec::new();
    // One entry, in the first block of inodes, with numbers from 1 on.
    [0_u32, 0, 1].iter().for_each(|number| listing.extend(number.to_le_bytes()));
    put(&mut listing, &[0, 0, 2, 3]);
    listing.extend(b"file");
    let root = inodes.len() as u64;
    put(&mut inodes, &[1, 0o755, 0, 0]);
    [0_u32, 2, 0, 2].iter().for_each(|number| inodes.extend(number.to_le_bytes()));
    // The format counts the entries `.` and `..` as three bytes.
    put(&mut inodes, &[u16::try_from(listing.len()).unwrap() + 3, 0]);
    inodes.extend(3_u32.to_le_bytes());
    let inode_table = image.len() as u64;
    metadata(&mut image, &inodes);
    let directory_table = image.len() as u64;
    metadata(&mut image, &listing);
    let ids = image.len() as u64;
    metadata(&mut image, &[0; 4]);
    let id_table = image.len() as u64;
    image.extend(ids.to_le_bytes());
    let used = image.len() as u64;
    let mut superblock = Vec::new();
    for number in [0x7371_7368, 2, 1_700_000_000, BLOCK_BYTES as u32, 0_u32] {
        superblock.extend(number.to_le_bytes());
    }
    // zstd, the logarithm of a block, no fragments and no attributes, one owner, version 4.0.
    put(&mut superblock, &[6, 17, 1 << 4 | 1 << 9, 1, 4, 0]);
    for number in [root, used, id_table, ABSENT, inode_table, directory_table, ABSENT, ABSENT] {
        superblock.extend(number.to_le_bytes());
    }
    image[..96].copy_from_slice(&superblock);
    image.resize(image.len().next_multiple_of(4096), 0);
    image
}

/// The expanded form of an image.
#[must_use]
pub fn expanded(image: &[u8]) -> Vec<u8> {
    let mut expanded = Vec::new();
    Expansion::plan(&image.to_vec()).unwrap().write(1, &mut expanded).unwrap();
    expanded
}

/// What a release manifest says of the expanded form of an image.
#[must_use]
pub fn described(image: &[u8]) -> ExpandedImage {
    let expanded = expanded(image);
    let tree = VerityTree::of_image(Digest::of(image), expanded.as_slice()).unwrap();
    ExpandedImage { size: expanded.len() as u64, root_hash: tree.root }
}

fn put(bytes: &mut Vec<u8>, numbers: &[u16]) {
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
}

/// Appends a table of one block.
fn metadata(image: &mut Vec<u8>, table: &[u8]) {
    let packed = zstd::bulk::compress(table, 3).unwrap();
    let (bytes, flag) = if packed.len() < table.len() { (&packed[..], 0) } else { (table, STORED_METADATA) };
    put(image, &[u16::try_from(bytes.len()).unwrap() | flag]);
    image.extend(bytes);
}
