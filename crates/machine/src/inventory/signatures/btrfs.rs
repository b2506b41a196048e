use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

const OFFSET: u64 = 64 << 10;

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let block = volume.at(OFFSET, 4096)?;
    if !block.has(0x40, b"_BHRfS_M") {
        return Ok(None);
    }
    let found = Signature::new(SignatureKind::Btrfs, OFFSET + 0x40);
    Ok(Some(found.label(block.text(0x12b, 256)).uuid(block.uuid(0x20))))
}
