//! A release whose OS image and initrd are made from those that run and patches, so that little is fetched.
//!
//! Where they come from changes nothing about what is in the slot: what a patch makes counts only if it has the root hash, or the digest,
//! of the release manifest. Whatever is wrong with a patch, or with what it starts from, the whole is fetched instead.

mod patches;
mod source;
#[cfg(test)]
mod tests;

use anyhow::Result;

pub use self::patches::{Patches, bytes_fetched};
use self::source::{PatchedSource, RunningSlot};
use super::updated_node::UpdatedNode;
use base::cancel::Cancel;
use base::progress::Progress;
use medium::payload_sources::PayloadSource;
use model::release_manifest::ReleaseManifest;

/// Stages `offered`, by patches if there are some.
pub fn stage(
    node: &mut UpdatedNode,
    offered: &ReleaseManifest,
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
        let running = RunningSlot { source: boot, release: &boot.release, root: &root, progress };
        Some(PatchedSource::new(source, (running, image), patches, offered))
    });
    let Some(patched) = patched else { return node.stage(offered, source, progress, cancel) };
    match node.stage(offered, &patched, progress, cancel) {
        Err(error) if patched.is_useless(&error) => {
            progress.warn(
                "update",
                &format!("the patch cannot be used, so the whole OS image is fetched: {error:#}"),
            );
            node.stage(offered, source, progress, cancel)
        }
        staged => staged,
    }
}
