use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

const MARK: &[u8] = b"bluestore block device\n";

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let block = volume.at(0, 64)?;
    let uuid = block.text(MARK.len(), 36).filter(|text| text.len() == 36);
    Ok(block.has(0, MARK).then(|| Signature::new(SignatureKind::CephBluestore, 0).uuid(uuid)))
}
