//! Members of arrays that a controller or the firmware made: SNIA's Common RAID Disk Data Format 2.0 (section 4.1) and Intel's
//! Matrix format (mdadm, super-intel.c). Both have their anchor in the last sectors.

use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

const DDF_MAGIC: u32 = 0xde11_de11;
const IMSM_MARK: &[u8] = b"Intel Raid ISM Cfg Sig. ";

/// The last sector; some controllers keep 256 more behind it.
pub(super) fn ddf(volume: &ProbedVolume<'_>) -> ProbeResult {
    for sectors in [1, 257] {
        let (offset, block) = volume.before_end(sectors * 512, 512)?;
        // The revision is a text such as 01.02.00.
        let revision = block.part(32, 8);
        if block.be32(0) == DDF_MAGIC
            && revision.iter().all(|byte| byte.is_ascii_digit() || b".\0 ".contains(byte))
        {
            let uuid = block.part(8, 24).iter().map(|byte| format!("{byte:02x}")).collect();
            return Ok(Some(Signature::new(SignatureKind::DdfMember, offset).uuid(Some(uuid))));
        }
    }
    Ok(None)
}

/// The second to last sector, of the disk's own size.
pub(super) fn imsm(volume: &ProbedVolume<'_>) -> ProbeResult {
    let (offset, block) = volume.before_end(2 * volume.sector, 512)?;
    let found = block.has(0, IMSM_MARK);
    let family = format!("{:08x}", block.le32(40));
    Ok(found.then(|| Signature::new(SignatureKind::ImsmMember, offset).uuid(Some(family))))
}
