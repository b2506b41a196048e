//! LVM2: the label of a physical volume in one of the first four sectors, and the name of its group in the metadata
//! (lvm2, lib/format_text/layout.h and lib/label/label.h).

use super::bytes::Bytes;
use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

const METADATA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    for sector in 0..4u64 {
        let offset = sector * 512;
        let label = volume.at(offset, 512)?;
        // A label contains its own place, so that a copy elsewhere does not count.
        if label.has(0, b"LABELONE") && label.has(24, b"LVM2 001") && label.le64(8) == sector {
            let found = Signature::new(SignatureKind::LvmVolume, offset).uuid(uuid(&label));
            return Ok(Some(found.label(group(volume, &label)?)));
        }
    }
    Ok(None)
}

/// 32 characters, shown in groups of 6, 4, 4, 4, 4, 4 and 6.
fn uuid(label: &Bytes) -> Option<String> {
    let text = label.text(label.le32(20) as usize, 32).filter(|text| text.len() == 32 && text.is_ascii())?;
    let pieces = [0..6, 6..10, 10..14, 14..18, 18..22, 22..26, 26..32].map(|range| &text[range]);
    Some(pieces.join("-"))
}

/// The first word of the metadata; `None` for a volume that is in no group, or whose metadata is on other volumes.
fn group(volume: &ProbedVolume<'_>, label: &Bytes) -> std::io::Result<Option<String>> {
    // After the identity and the size: pairs of offset and length, first the data areas, then those of metadata, each list with a
    // pair of zeros at its end.
    let mut pairs = (label.le32(20) as usize + 40..).step_by(16).take_while(|at| *at < 496);
    let zero = |at: &usize| label.le64(*at) == 0;
    let Some(area) = pairs.by_ref().find(zero).and_then(|_| pairs.next()).filter(|at| !zero(at)) else {
        return Ok(None);
    };
    let start = label.le64(area);
    let header = volume.at(start, 512)?;
    // The first of the raw locations: offset from the area's start, and length.
    if !header.has(4, METADATA_MAGIC) || header.le64(40) == 0 {
        return Ok(None);
    }
    let text = volume.at(start.saturating_add(header.le64(40)), 128)?;
    let name = text.text(0, 128).and_then(|text| text.split_once(" {").map(|(name, _)| name.to_owned()));
    Ok(name.filter(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+_.-".contains(&byte))))
}
