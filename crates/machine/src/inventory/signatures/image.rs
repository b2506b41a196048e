//! File systems that are made once and only read: ISO 9660 (ECMA-119, 8.4) and SquashFS (fs/squashfs/squashfs_fs.h).

use super::bytes::Bytes;
use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

/// The primary volume descriptor: sector 16 of 2048 bytes.
const DESCRIPTOR: u64 = 16 * 2048;

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let block = volume.at(0, 96)?;
    if block.has(0, b"hsqs") && block.le16(28) == 4 {
        return Ok(Some(Signature::new(SignatureKind::Squashfs, 0)));
    }
    let descriptor = volume.at(DESCRIPTOR, 2048)?;
    if !descriptor.has(0, b"\x01CD001") {
        return Ok(None);
    }
    let found = Signature::new(SignatureKind::Iso9660, DESCRIPTOR + 1);
    Ok(Some(found.label(descriptor.text(40, 32)).uuid(date(&descriptor))))
}

/// The date of the last change, or else of creation: Linux uses it as the identity of a medium.
fn date(descriptor: &Bytes) -> Option<String> {
    [830, 813].into_iter().find_map(|offset| {
        let digits = descriptor.part(offset, 16);
        let set =
            digits.len() == 16 && digits.iter().all(u8::is_ascii_digit) && digits.iter().any(|d| *d != b'0');
        let text = set.then(|| String::from_utf8_lossy(digits).into_owned())?;
        let pieces = [0..4, 4..6, 6..8, 8..10, 10..12, 12..14, 14..16].map(|range| &text[range]);
        Some(pieces.join("-"))
    })
}
