//! DRBD: its metadata in the last 4 KiB (drbd-utils, user/shared/drbdmeta.c). Words are big-endian.

use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

/// Versions 8, 8.4 while it is in use, and 9.
const MAGICS: [u32; 3] = [0x8374_026b, 0x8374_026c, 0x8374_026d];
/// Bytes of the device for each bit of its map, the same in all of them.
const BYTES_PER_BIT: u32 = 4096;

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let (offset, block) = volume.before_end(4096, 128)?;
    let Some(version) = MAGICS.iter().position(|magic| block.be32(60) == *magic) else { return Ok(None) };
    if block.be32(80) != BYTES_PER_BIT {
        return Ok(None);
    }
    let identity = block.be64(if version == 2 { 48 } else { 40 });
    Ok(Some(Signature::new(SignatureKind::Drbd, offset + 60).uuid(Some(format!("{identity:x}")))))
}
