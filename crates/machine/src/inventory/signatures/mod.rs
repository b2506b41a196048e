//! What is on a disk or partition, recognized from its bytes: partition tables, file systems, volumes, members of arrays.
//!
//! Each family of formats is a file with its facts and their source; a probe reads a few blocks and never writes. It says what
//! would be lost, not whether that is intact: checksums are read only if the magic bytes alone are too short, or if the state
//! itself matters, as with partition tables.

mod boot_sector;
mod btrfs;
mod bytes;
mod ceph;
mod drbd;
mod ext;
mod firmware_raid;
mod image;
mod luks;
mod lvm;
mod marks;
mod md;
mod signature;
mod swap;
mod table;
mod vmfs;
mod volume;
mod xfs;
mod zfs;

use std::io;
use std::ops::Range;

pub use signature::{Signature, SignatureKind};
use volume::ProbeResult;
pub use volume::ReadAt;
pub(super) use volume::{ProbedVolume, Window};

/// One probe for each format; several results are listed in this order.
const PROBES: [fn(&ProbedVolume<'_>) -> ProbeResult; 16] = [
    md::at_start,
    md::at_end,
    firmware_raid::ddf,
    firmware_raid::imsm,
    lvm::probe,
    luks::probe,
    zfs::probe,
    ceph::probe,
    drbd::probe,
    vmfs::volume,
    vmfs::file_system,
    ext::probe,
    xfs::probe,
    btrfs::probe,
    image::probe,
    swap::probe,
];

/// The signatures on a disk or partition, as far as it could be read.
#[derive(Debug, Default)]
pub(super) struct ProbedContent {
    pub(super) signatures: Vec<Signature>,
    /// Why some of it could not be read.
    pub(super) trouble: Option<io::Error>,
}

impl ProbedContent {
    /// Everything on a whole disk. `partitions` are their ranges in bytes: signatures there belong to them.
    pub(super) fn of_disk(volume: &ProbedVolume<'_>, partitions: &[Range<u64>]) -> Self {
        let mut content = Self::default();
        let boot = boot_sector::probe(volume);
        let taken = matches!(boot, Ok(Some(_)));
        content.take(table::probe(volume, taken));
        content.take(boot);
        content.probe(volume);
        let theirs = |found: &Signature| partitions.iter().any(|range| range.contains(&found.offset));
        content.signatures.retain(|found| found.kind.is_table() || !theirs(found));
        content
    }

    /// Everything on a partition; a table inside it is ignored.
    pub(super) fn of_partition(volume: &ProbedVolume<'_>) -> Self {
        let mut content = Self::default();
        content.take(boot_sector::probe(volume));
        content.probe(volume);
        content
    }

    fn probe(&mut self, volume: &ProbedVolume<'_>) {
        for probe in PROBES {
            self.take(probe(volume));
        }
        self.take(marks::probe(volume));
    }

    fn take(&mut self, found: io::Result<impl IntoIterator<Item = Signature>>) {
        match found {
            Ok(found) => self.signatures.extend(found),
            Err(error) => self.trouble = self.trouble.take().or(Some(error)),
        }
    }
}

#[cfg(test)]
mod tests;
