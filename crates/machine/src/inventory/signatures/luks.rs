//! LUKS1 and LUKS2 (cryptsetup: LUKS1 and LUKS2 on-disk format specifications). LUKS2 keeps a second header behind the first, so
//! a disk whose start was overwritten can still be one.

use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

/// Where the second header may begin (LUKS2 specification, 2.1).
const SECOND: [u64; 9] =
    [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let header = volume.at(0, 512)?;
    if header.has(0, b"LUKS\xba\xbe") {
        let kind = if header.be16(6) == 1 { SignatureKind::Luks1 } else { SignatureKind::Luks2 };
        // LUKS1 has the name of a cipher where LUKS2 has a label.
        let label = header.text(24, 48).filter(|_| kind == SignatureKind::Luks2);
        return Ok(Some(Signature::new(kind, 0).label(label).uuid(header.text(168, 40))));
    }
    for offset in SECOND {
        let header = volume.at(offset, 512)?;
        if header.has(0, b"SKUL\xba\xbe") && header.be16(6) == 2 && header.be64(256) == offset {
            let found = Signature::new(SignatureKind::Luks2, offset);
            return Ok(Some(found.label(header.text(24, 48)).uuid(header.text(168, 40))));
        }
    }
    Ok(None)
}
