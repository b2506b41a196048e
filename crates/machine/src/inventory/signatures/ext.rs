//! ext2, ext3 and ext4: the superblock at byte 1024 (Documentation/filesystems/ext4/super.rst).

use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

const OFFSET: u64 = 1024;
const MAGIC: u16 = 0xef53;

/// `COMPAT_HAS_JOURNAL`.
const JOURNAL: u32 = 0x4;
/// `INCOMPAT_JOURNAL_DEV`: a device that is nothing but a journal.
const JOURNAL_DEVICE: u32 = 0x8;
/// The incompatible features that ext3 may have: file types, and a journal to replay.
const EXT3_INCOMPATIBLE: u32 = 0x2 | 0x4 | 0x10;
/// The read-only compatible features that it may have: sparse superblocks, large files, directories as trees.
const EXT3_READ_ONLY: u32 = 0x1 | 0x2 | 0x4;

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let block = volume.at(OFFSET, 1024)?;
    if block.le16(0x38) != MAGIC {
        return Ok(None);
    }
    let (compatible, incompatible, read_only) = (block.le32(0x5c), block.le32(0x60), block.le32(0x64));
    let kind = if incompatible & JOURNAL_DEVICE != 0 {
        SignatureKind::ExtJournal
    } else if incompatible & !EXT3_INCOMPATIBLE != 0 || read_only & !EXT3_READ_ONLY != 0 {
        SignatureKind::Ext4
    } else if compatible & JOURNAL != 0 {
        SignatureKind::Ext3
    } else {
        SignatureKind::Ext2
    };
    let found = Signature::new(kind, OFFSET + 0x38);
    Ok(Some(found.label(block.text(0x78, 16)).uuid(block.uuid(0x68))))
}
