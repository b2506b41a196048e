//! `installer update stage`: writes a release into the slot that does not run.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use base::cancel::Cancel;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::program::Context;
use cluster::version_skew::KubernetesStep;
use cluster::version_step::keep_running;
use install::execute::{forget_install_files, keep_install_files};
use machine::unsigned_record::UnsignedRecord;
use machine::update_state::ReleaseId;
use medium::payload_sources::PayloadSource;
use model::boot::Slot;
use model::release::Release;
use model::release_manifest::ReleaseManifest;
use node::update::{
    KeptSource, OfferStatus, UpdateLock, UpdatedNode, fetched, forget, kubernetes_step, patched,
};

use super::check::UpdatePlan;
use super::offer::{OfferedRelease, UpdateRequest, add_images, open};
use super::{rollout, settled};

/// Writes the release into the other slot.
pub(crate) fn stage(request: &UpdateRequest, wait: Duration, context: &Context) -> Result<()> {
    let _lock = UpdateLock::take(Path::new("/"), wait)?;
    let mut node = settled(context)?;
    rollout::telling(&mut node, request.sha256, context, |node| stage_on(node, request, &|_| Ok(()), context))
        .map(drop)
}

/// Writes the release into the other slot if `allow` permits it; returns whether there is something to restart into.
pub(super) fn stage_on(
    node: &mut UpdatedNode,
    request: &UpdateRequest,
    allow: &dyn Fn(&ReleaseId) -> Result<()>,
    context: &Context,
) -> Result<bool> {
    let wanted = |there: Digest| request.sha256.is_none_or(|digest| digest == there);
    if request.from.is_none()
        && fetched(Path::new("/")).is_none()
        && let Some(staged) = node.waiting().filter(|staged| wanted(staged.release.digest))
    {
        let told = format!("{} is in slot {} already; nothing to do.", staged.release.version, staged.slot);
        context.tell("update", &told);
        return Ok(true);
    }
    let offered = open(node, request, context)?.verified()?;
    context.tell("update", UpdatePlan::of(node, &offered)?.text().trim_end());
    if offered.offer == OfferStatus::Runs {
        return Ok(false);
    }
    allow(&ReleaseId::of(&offered.release))?;
    let (slot, cancel, root) = (node.target(), Cancel::on_signals(), Path::new("/"));
    let OfferedRelease { source, release, trust, .. } = &offered;
    if let Some(record) = UnsignedRecord::of(release, trust) {
        // Before anything of the release can start.
        record.keep(root)?;
    }
    if kubernetes_step(node.kubernetes.as_ref(), release)? != KubernetesStep::None {
        keep_kubernetes(node, release, context)?;
    }
    let kept = KeptSource::new(root, release, source.as_ref(), &context.progress, &cancel)?;
    // The recovery system could store it only in memory.
    let from: &dyn PayloadSource = if node.slots.running == Slot::Recovery { source.as_ref() } else { &kept };
    patched::stage(node, release, from, &context.progress, &cancel)?;
    add_images(&offered, &cancel, context)?;
    if node.slots.running != Slot::Recovery {
        keep_install_files_of(node, release, from, context)?;
    }
    forget(root)?;
    context.tell(
        "update",
        &format!("{} {} is in slot {slot}, and every byte was read back.", release.name, release.version),
    );
    Ok(true)
}

/// Keeps what other machines need to be installed from this node once it runs `release`, and of the release that runs now.
fn keep_install_files_of(
    node: &UpdatedNode,
    release: &ReleaseManifest,
    source: &dyn PayloadSource,
    context: &Context,
) -> Result<()> {
    let var = Path::new("/var");
    for lack in keep_install_files(var, (&**release, release.digest()), source)? {
        context
            .progress
            .note("update", format!("This node does not keep a file for installs of other machines: {lack}"));
    }
    forget_install_files(var, &[release.digest(), node.release.digest()])
}

/// Lets the Kubernetes that runs go on under `offered`, which brings another.
///
/// # Errors
/// [`Class::Hardware`] in the recovery system: the programs that a slot ran are not at hand there.
fn keep_kubernetes(node: &UpdatedNode, offered: &Release, context: &Context) -> Result<()> {
    if node.slots.running == Slot::Recovery {
        let what = format!(
            "{} {} brings another Kubernetes than the recovery system",
            offered.name, offered.version
        );
        return Err(Failure::new(Class::Hardware, what)
            .because(anyhow::anyhow!(
                "the slots start what this node ran before, which cannot be kept from here"
            ))
            .hint("Write a release with the same Kubernetes first, start it, and update from there.")
            .into());
    }
    keep_running(Path::new("/"), &mut |text| context.progress.note("kubernetes", text))
}
