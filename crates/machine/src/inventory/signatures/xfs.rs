//! XFS: the superblock at the start (fs/xfs/libxfs/xfs_format.h, `struct xfs_dsb`).

use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let block = volume.at(0, 512)?;
    let sane = (512..=65536).contains(&block.be32(4)) && block.be32(4).is_power_of_two();
    if !block.has(0, b"XFSB") || !sane {
        return Ok(None);
    }
    Ok(Some(Signature::new(SignatureKind::Xfs, 0).label(block.text(108, 12)).uuid(block.uuid(32))))
}
