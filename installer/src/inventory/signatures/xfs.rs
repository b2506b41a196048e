//! XFS: the superblock at the start (fs/xfs/libxfs/xfs_format.h, `struct xfs_dsb`).

use super::{Found, Kind, Signature, Volume};

pub(super) fn probe(volume: &Volume<'_>) -> Found {
    let block = volume.at(0, 512)?;
    let sane = (512..=65536).contains(&block.be32(4)) && block.be32(4).is_power_of_two();
    if !block.has(0, b"XFSB") || !sane {
        return Ok(None);
    }
    Ok(Some(Signature::new(Kind::Xfs, 0).label(block.text(108, 12)).uuid(block.uuid(32))))
}
