//! Members of Linux software RAID (include/uapi/linux/raid/md_p.h). Superblocks 1.1 and 1.2 are at the start, 0.90 and 1.0
//! at the end.

use super::bytes::Bytes;
use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

const MAGIC: u32 = 0xa92b_4efc;
/// Room at the end that 0.90 keeps: its superblock begins at the second to last such boundary.
const RESERVED: u64 = 64 << 10;

/// 1.1 at the start, 1.2 4 KiB behind it.
pub(super) fn at_start(volume: &ProbedVolume<'_>) -> ProbeResult {
    for offset in [0, 4096] {
        if let Some(found) = version_1(&volume.at(offset, 256)?, offset) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

pub(super) fn at_end(volume: &ProbedVolume<'_>) -> ProbeResult {
    // 1.0: at least 8 KiB before the end, at a multiple of 4 KiB.
    if let Some(offset) = volume.size.checked_sub(8 << 10).map(|end| end / 4096 * 4096)
        && let Some(found) = version_1(&volume.at(offset, 256)?, offset)
    {
        return Ok(Some(found));
    }
    let Some(offset) = (volume.size / RESERVED * RESERVED).checked_sub(RESERVED) else { return Ok(None) };
    let block = volume.at(offset, 64)?;
    Ok(version_0(&block).map(|uuid| Signature::new(SignatureKind::MdMember, offset).uuid(uuid)))
}

fn version_1(block: &Bytes, offset: u64) -> Option<Signature> {
    // The superblock contains its own place, in sectors of 512 bytes.
    let here = block.le32(0) == MAGIC && block.le32(4) == 1 && block.le64(144) == offset / 512;
    here.then(|| {
        Signature::new(SignatureKind::MdMember, offset).label(block.text(32, 32)).uuid(block.uuid(16))
    })
}

/// Words in the byte order of the machine that made it; the identity is four words.
fn version_0(block: &Bytes) -> Option<Option<String>> {
    let word: fn(&Bytes, usize) -> u32 = match block.le32(0) {
        MAGIC => Bytes::le32,
        _ if block.be32(0) == MAGIC => Bytes::be32,
        _ => return None,
    };
    if word(block, 4) != 0 {
        return None;
    }
    let words = [20, 52, 56, 60].map(|at| word(block, at));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    Some(Bytes::new(bytes).uuid(0))
}
