//! Btrfs: the first superblock at 64 KiB (fs/btrfs/accessors.h, `struct btrfs_super_block`).

use super::{Found, Kind, Signature, Volume};

const OFFSET: u64 = 64 << 10;

pub(super) fn probe(volume: &Volume<'_>) -> Found {
    let block = volume.at(OFFSET, 4096)?;
    if !block.has(0x40, b"_BHRfS_M") {
        return Ok(None);
    }
    let found = Signature::new(Kind::Btrfs, OFFSET + 0x40);
    Ok(Some(found.label(block.text(0x12b, 256)).uuid(block.uuid(0x20))))
}
