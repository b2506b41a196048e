//! Swap space: a header page with a signature in the last ten bytes (include/linux/swap.h, `union swap_header`). The page size is
//! that of the machine that made it.

use super::signature::{Signature, SignatureKind};
use super::volume::{ProbeResult, ProbedVolume};

const PAGES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

pub(super) fn probe(volume: &ProbedVolume<'_>) -> ProbeResult {
    let header = volume.at(1024, 64)?;
    for page in PAGES {
        let mark = volume.at(page - 10, 10)?;
        let kind = match mark.part(0, 10) {
            b"SWAPSPACE2" | b"SWAP-SPACE" => SignatureKind::Swap,
            // kernel/power/swap.c, and the older forms of uswsusp and TuxOnIce.
            text if text.starts_with(b"S1SUSPEND") || text.starts_with(b"S2SUSPEND") => {
                SignatureKind::Hibernation
            }
            text if text.starts_with(b"ULSUSPEND") || text.starts_with(b"LINHIB0001") => {
                SignatureKind::Hibernation
            }
            _ => continue,
        };
        let found = Signature::new(kind, page - 10);
        return Ok(Some(found.label(header.text(28, 16)).uuid(header.uuid(12))));
    }
    Ok(None)
}
