//! The release that a command names, opened, judged and compared with what runs.

use std::path::Path;

use anyhow::Result;

use base::cancel::Cancel;
use base::digest::Digest;
use base::failure::Failure;
use base::program::Context;
use base::size::ByteSize;
use cluster::version_skew::KubernetesStep;
use cluster::version_step::VersionToKeep;
use install::execute::{IMAGES_SPARE_ROOM, MissingImages, RunningContainerd, import_missing, missing_images};
use jiff::Timestamp;
use machine::inventory::Roots;
use machine::trust_store;
use medium::payload_sources::{PayloadSource, read_hardware};
use model::boot::Slot;
use model::config::{Images, InstallConfig, Role};
use model::release::Release;
use model::release_manifest::ReleaseManifest;
use node::update::fetched::to_store;
use node::update::{
    CertificateVerdict, HardwareVerdict, OfferStatus, RunningSystem, StoredPart, UpdatePermissions,
    UpdateRoom, UpdatedNode, decide, kubernetes_step,
};
use trust::ReleaseTrust;

use super::source::{self, OpenedRelease};
use super::this_node;

/// Which release is wanted, and what is allowed.
#[derive(Debug)]
pub(crate) struct UpdateRequest {
    /// By default the one that was fetched.
    pub(crate) from: Option<String>,
    pub(crate) allowed: UpdatePermissions,
    /// SHA-256 of its manifest.
    pub(crate) sha256: Option<Digest>,
    /// Whether a person has said that it may be used although not enough trusted keys have signed it.
    pub(crate) allow_unsigned: bool,
}

/// An opened release with the decision on it.
pub(super) struct OfferedRelease {
    pub(super) source: Box<dyn PayloadSource>,
    pub(super) release: ReleaseManifest,
    pub(super) trust: ReleaseTrust,
    pub(super) offer: OfferStatus,
    /// The role whose container images the node gets; none if it pulls its images on demand, or the role needs none.
    pub(super) seeding: Option<Role>,
    /// Whether this node works under it as it does now.
    pub(super) hardware: HardwareVerdict,
    /// The certificates of this node that end before or soon after the update.
    pub(super) certificates: CertificateVerdict,
    /// Why it may be another release than the one that was meant.
    pub(super) unverified: Option<Failure>,
}

impl OfferedRelease {
    /// Fails unless the release is known to be the one that was meant.
    pub(super) fn verified(self) -> Result<Self> {
        match self.unverified {
            Some(failure) => Err(failure.into()),
            None => Ok(self),
        }
    }

    /// The container images that the node lacks for the release.
    pub(super) fn missing_images(&self) -> Result<MissingImages> {
        match self.seeding {
            Some(role) if self.offer != OfferStatus::Runs => {
                missing_images(&containerd(&self.release), &self.release, role)
            }
            _ => Ok(MissingImages::default()),
        }
    }

    /// The room that the update takes on this node, if `fetched` bytes of the OS come over a network.
    ///
    /// # Errors
    /// [`Class::DiskIo`](base::failure::Class::DiskIo) if there is too little.
    pub(super) fn room(
        &self,
        node: &UpdatedNode,
        fetched: u64,
        images: &MissingImages,
    ) -> Result<UpdateRoom> {
        let root = Path::new("/");
        let mut parts = Vec::new();
        if self.offer == OfferStatus::New && node.slots.running != Slot::Recovery {
            parts.push(to_store(root, fetched));
            if kubernetes_step(node.kubernetes.as_ref(), &self.release)? != KubernetesStep::None
                && let Some(VersionToKeep { directory, size, spare }) = VersionToKeep::of(root)?
            {
                let what = "the programs of the Kubernetes that runs";
                parts.push(StoredPart { what, directory, size, spare });
            }
        }
        parts.push(StoredPart {
            what: "container images",
            directory: containerd(&self.release).root,
            size: ByteSize::bytes(images.fetch),
            spare: IMAGES_SPARE_ROOM,
        });
        let room = UpdateRoom::of(parts)?;
        room.require()?;
        Ok(room)
    }
}

pub(super) fn open(node: &UpdatedNode, request: &UpdateRequest, context: &Context) -> Result<OfferedRelease> {
    let installed = this_node(&context.progress)?;
    let store = trust_store::of_node(&installed)?.allowing_unsigned(request.allow_unsigned);
    let config = installed.config;
    let opened = match &request.from {
        Some(from) => OpenedRelease::open(from, request.sha256, &config, &store)?,
        None => OpenedRelease::fetched(Path::new("/"), request.sha256, &store)?,
    };
    let unverified = opened.require_verified().err();
    let OpenedRelease { source, release, trust, .. } = opened;
    let running = RunningSystem {
        release: &node.release,
        state: node.running_state(),
        memory: &node.memory,
        kubernetes: node.kubernetes.as_ref(),
    };
    let offer = decide(running, &release, request.allowed)?;
    source::has_slot(source.as_ref(), &release)?;
    if offer == OfferStatus::New {
        node.slots.slot(node.target().into()).require_room(&release)?;
    }
    let (hardware, certificates) = match offer {
        OfferStatus::Runs => Default::default(),
        _ => (
            judge_hardware(source.as_ref(), &release, &config, request, context)?,
            judge_certificates(node, &release, &config, request, context)?,
        ),
    };
    let role = config.install.own_role();
    // A fetched release has brought its images to containerd. The recovery system has no containerd, and does not mount its store.
    let seeds = request.from.is_some()
        && node.slots.running != Slot::Recovery
        && config.install.images() == Images::Preload
        && release.images_for(role).next().is_some();
    let seeding = seeds.then_some(role);
    let source = if seeds { source::with_images(source, &config, &release)? } else { source };
    Ok(OfferedRelease { source, release, trust, offer, seeding, hardware, certificates, unverified })
}

/// What this node would lose under the release.
///
/// # Errors
/// [`Class::Hardware`](base::failure::Class::Hardware) if it would lose something that was not accepted.
fn judge_hardware(
    source: &dyn PayloadSource,
    release: &Release,
    config: &InstallConfig,
    request: &UpdateRequest,
    context: &Context,
) -> Result<HardwareVerdict> {
    let coverage = read_hardware(source, release)?;
    let verdict = HardwareVerdict::of(&Roots::default(), config, release, coverage.as_ref())?;
    match request.allowed.hardware {
        false => verdict.require(release)?,
        true => {
            verdict.lost.iter().for_each(|lost| context.progress.warn("update", &format!("accepted: {lost}")))
        }
    }
    Ok(verdict)
}

/// Whether the certificates of this node let it come back to its cluster. The recovery system does not see them.
///
/// # Errors
/// [`Class::Hardware`](base::failure::Class::Hardware) if one has ended, and that was not accepted.
fn judge_certificates(
    node: &UpdatedNode,
    release: &Release,
    config: &InstallConfig,
    request: &UpdateRequest,
    context: &Context,
) -> Result<CertificateVerdict> {
    if node.slots.running == Slot::Recovery {
        return Ok(CertificateVerdict::default());
    }
    let verdict = CertificateVerdict::of(Path::new("/"), config, Timestamp::now());
    match request.allowed.hardware {
        false => verdict.require(release)?,
        true => {
            verdict.ended.iter().for_each(|end| context.progress.warn("update", &format!("accepted: {end}")))
        }
    }
    Ok(verdict)
}

pub(super) fn containerd(release: &Release) -> RunningContainerd {
    RunningContainerd::of(release.distribution)
}

/// Gives the containerd that runs the images that it lacks.
pub(super) fn add_images(offered: &OfferedRelease, cancel: &Cancel, context: &Context) -> Result<()> {
    let OfferedRelease { source, release, seeding, .. } = offered;
    let Some(role) = *seeding else { return Ok(()) };
    import_missing(&containerd(release), source.as_ref(), release, role, &context.progress, cancel)?;
    Ok(())
}
