//! A release whose OS image and initrd are made from those that run and patches, so that little is fetched.
//!
//! Where they come from changes nothing about what is in the slot: what a patch makes counts only if it has the root hash, or the digest,
//! of the release manifest. Whatever is wrong with a patch, or with what it starts from, the whole is fetched instead.

mod source;
#[cfg(test)]
mod tests;

use anyhow::Result;

use self::source::PatchedSource;
use super::updated_node::UpdatedNode;
use crate::execute::Cancel;
use base::digest::Digest;
use base::progress::Progress;
use medium::patches::ReleasePatch;
use medium::sources::{PayloadPlace, PayloadSource};
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

    /// How many bytes they have.
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

fn has_same(running: &Release, part: &Payload) -> bool {
    let same = |ours: &Payload| (ours.sha256, ours.size) == (part.sha256, part.size);
    matches!(part.purpose, Purpose::Kernel | Purpose::Initrd)
        && running.payload(part.purpose).is_some_and(same)
}

/// Stages `offered`, by patches if there are some.
pub fn stage(
    node: &mut UpdatedNode,
    offered: &Release,
    source: &dyn PayloadSource,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<()> {
    let root = node.root().to_owned();
    // The image that is read is the one that the slot itself tells of.
    let slot = node.slots.slot(node.slots.running);
    let boot = slot.source().ok();
    let patched = boot.as_ref().zip(slot.source().ok()).and_then(|(boot, image)| {
        let patches = Patches::offered(&image.release, offered, source)?;
        let patched = PatchedSource::new(source, image, patches, offered);
        Some(patched.with_slot(boot, &boot.release).with_workshop(&root, progress))
    });
    let Some(patched) = patched else { return node.stage(offered, source, progress, cancel) };
    match node.stage(offered, &patched, progress, cancel) {
        Err(error) if patched.is_useless(&error) => {
            progress
                .warn("update", &format!("the whole OS image is fetched, the patch is of no use: {error:#}"));
            node.stage(offered, source, progress, cancel)
        }
        staged => staged,
    }
}
