//! `installer update fetch`: keeps a release on this node.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use base::cancel::Cancel;
use base::failure::{Class, Failure};
use base::program::Context;
use install::execute::{install_files, slot_payloads};
use medium::payload_sources::PayloadPlace;
use model::boot::Slot;
use node::update::release_files::{is_release_file, release_files};
use node::update::{KeptSource, OfferStatus, UpdateLock, UpdatedNode};

use super::offer::{OfferedRelease, UpdateRequest, add_images, open};
use super::settled;

/// Keeps the release on this node, with the container images that the node lacks, and writes no slot.
pub(crate) fn fetch(request: &UpdateRequest, wait: Duration, context: &Context) -> Result<()> {
    let _lock = UpdateLock::take(Path::new("/"), wait)?;
    let node = settled(context)?;
    if node.slots.running == Slot::Recovery {
        return Err(Failure::new(Class::Hardware, "the recovery system keeps nothing")
            .hint("Write the release at once: installer update apply --from MEDIUM")
            .into());
    }
    let offered = open(&node, request, context)?.verified()?;
    let told = match offered.offer {
        OfferStatus::Runs => keep_running_release(&node, &offered, context)?,
        OfferStatus::Staged => "is in a slot already; there is nothing to fetch",
        OfferStatus::New => {
            let (progress, cancel) = (&context.progress, Cancel::on_signals());
            let (release, source) = (&offered.release, offered.source.as_ref());
            // Patches are of no use for nodes that this one serves, so the whole is kept.
            let parts = slot_payloads(release).into_iter().chain(install_files(release));
            let away = parts.filter(|part| source.place(part) == Some(PayloadPlace::Network));
            offered.room(&node, away.map(|part| part.size).sum(), &offered.missing_images()?)?;
            KeptSource::new(Path::new("/"), release, source, progress, &cancel)?.fetch(release)?;
            add_images(&offered, &cancel, context)?;
            "is on this node. To write it into the slot that does not run: installer update stage"
        }
    };
    context.tell("update", &format!("{} {} {told}", offered.release.name, offered.release.version));
    Ok(())
}

/// Keeps what this node lacks of the release that runs, so that it can serve all of it.
fn keep_running_release(
    node: &UpdatedNode,
    offered: &OfferedRelease,
    context: &Context,
) -> Result<&'static str> {
    let (root, progress, cancel) = (Path::new("/"), &context.progress, Cancel::on_signals());
    let OfferedRelease { release, source, .. } = offered;
    let files = release_files(root, Some(&node.slots), release, progress, &cancel)?;
    let complete = !files.lacking().any(is_release_file);
    if !complete {
        KeptSource::new(root, release, source.as_ref(), progress, &cancel)?.fetch(release)?;
    }
    add_images(offered, &cancel, context)?;
    Ok(match complete {
        true => "runs already, and this node has all of its files; nothing was fetched",
        false => "runs already; what this node lacked of it was fetched. To serve it: installer update serve",
    })
}
