//! The patches that are of use to a node, and what it fetches with them.

use base::digest::Digest;
use medium::patches::ReleasePatch;
use medium::payload_sources::{PayloadPlace, PayloadSource};
use model::release::{Payload, Purpose, Release};

/// The patches with which a release is made from the one that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patches {
    pub image: ReleasePatch,
    pub initrd: Option<ReleasePatch>,
}

impl Patches {
    /// Those by which `source` makes `offered` from what is in the slot of `running`, if there is one of the OS image and that is less to
    /// fetch. A source that does not tell its patches has none.
    pub fn offered(running: &Release, offered: &Release, source: &dyn PayloadSource) -> Option<Self> {
        let image = offered.payload(Purpose::Rootfs)?;
        if source.place(image) != Some(PayloadPlace::Network) {
            return None;
        }
        let patches = source.patches().ok()?;
        let smallest = |from: Digest, whole: &Payload| {
            let fit = patches.iter().filter(|patch| patch.from == from && patch.size < whole.size);
            fit.min_by_key(|patch| patch.size).cloned()
        };
        let initrds = running.payload(Purpose::Initrd).zip(offered.payload(Purpose::Initrd));
        Some(Self {
            image: smallest(running.expanded.root_hash, image)?,
            initrd: initrds.and_then(|(from, whole)| smallest(from.sha256, whole)),
        })
    }

    #[must_use]
    pub fn size(&self) -> u64 {
        self.image.size + self.initrd.as_ref().map_or(0, |patch| patch.size)
    }
}

/// How many bytes of a part of the OS are fetched where `running` runs, with patches if there are some: then what has not changed comes
/// from the slot that runs.
pub fn bytes_fetched(part: &Payload, running: &Release, patches: Option<&Patches>) -> u64 {
    match (patches, part.purpose) {
        (Some(patches), Purpose::Rootfs) => patches.image.size,
        (Some(_), _) if has_same(running, part) => 0,
        (Some(Patches { initrd: Some(patch), .. }), Purpose::Initrd) => patch.size,
        _ => part.size,
    }
}

/// Whether kernel or initrd are those of the release that runs.
pub(super) fn has_same(running: &Release, part: &Payload) -> bool {
    let same = |ours: &Payload| (ours.sha256, ours.size) == (part.sha256, part.size);
    matches!(part.purpose, Purpose::Kernel | Purpose::Initrd)
        && running.payload(part.purpose).is_some_and(same)
}
