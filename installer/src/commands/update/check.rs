//! `installer update check`: what an update would do.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use base::program::Context;
use base::size::ByteSize;
use cluster::removed_apis::RemovedApi;
use cluster::version_skew::KubernetesStep;
use install::execute::{MissingImages, slot_payloads};
use machine::update_state::ReleaseId;
use medium::payload_sources::PayloadPlace;
use model::boot::record::UpdateSlot;
use model::kubernetes::KubernetesVersion;
use model::release::{Purpose, Release};
use model::rollback_index::RollbackIndex;
use node::update::patched::{Patches, bytes_fetched};
use node::update::{
    CertificateVerdict, HardwareVerdict, OfferStatus, UpdateRoom, UpdatedNode, kubernetes_step,
};

use super::offer::{OfferedRelease, UpdateRequest, open};

/// What an update would do.
#[derive(Debug, Serialize)]
pub(super) struct UpdatePlan {
    product: String,
    running: ReleaseId,
    offered: ReleaseId,
    offer: OfferStatus,
    /// The slot that is written.
    slot: UpdateSlot,
    /// Bytes of the OS that come over a network.
    fetched: u64,
    /// Those of them that are patches, with which the OS image, and the initrd too, is made from the one that runs; none where both are
    /// fetched whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<u64>,
    /// Bytes that are written into the slot.
    written: u64,
    /// Whether the node works under the release as it does now. What was accepted is in it.
    hardware: HardwareVerdict,
    /// The certificates of the node that end before or soon after the update. What was accepted is in it.
    #[serde(skip_serializing_if = "CertificateVerdict::is_empty")]
    certificates: CertificateVerdict,
    /// What the update stores on file systems of the node, and what is free there.
    room: UpdateRoom,
    /// Container images that the node gets before it restarts.
    images: MissingImages,
    /// Whether the node restarts.
    restart: bool,
    /// The version of Kubernetes that runs, before and after the update.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<KubernetesVersion>,
    /// The version of Kubernetes that the release brings.
    #[serde(skip_serializing_if = "Option::is_none")]
    brought_kubernetes: Option<KubernetesVersion>,
    /// What that is to the one that runs.
    kubernetes_step: KubernetesStep,
    /// APIs that the cluster uses, and that this version no longer has; on nodes with an API server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    removed_apis: Vec<RemovedApi>,
    /// Why it is not known whether there are such.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_apis_unknown: Option<String>,
    /// Whether trusted keys have signed the release, its digest was given, or its sender is authenticated. If not, only `check`
    /// goes on.
    verified: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    unverified: Option<String>,
    /// Who has signed the release.
    trust: String,
    /// Whether nobody but a person on this node answers for the release, or a development key.
    trust_warning: bool,
    /// That of the release.
    #[serde(skip_serializing_if = "RollbackIndex::is_zero")]
    rollback_index: RollbackIndex,
}

impl UpdatePlan {
    /// # Errors
    /// [`Class::DiskIo`](base::failure::Class::DiskIo) if the node has too little room for it.
    pub(super) fn of(node: &UpdatedNode, whole: &OfferedRelease) -> Result<Self> {
        let images = whole.missing_images()?;
        let OfferedRelease {
            source,
            release: offered,
            trust,
            offer,
            hardware,
            certificates,
            unverified,
            seeding: _,
        } = whole;
        let offer = *offer;
        let parts = slot_payloads(offered);
        let away = parts.iter().filter(|part| source.place(part) == Some(PayloadPlace::Network));
        let new = offer == OfferStatus::New;
        let patches = if new { Patches::offered(&node.release, offered, source.as_ref()) } else { None };
        let fetched = away.map(|part| bytes_fetched(part, &node.release, patches.as_ref())).sum();
        let fetched = if new { fetched } else { 0 };
        let boot = parts.iter().filter(|part| part.purpose != Purpose::Rootfs);
        let (removed_apis, removed_apis_unknown) = match removed_apis(node, offered) {
            Ok(removed) => (removed, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let written = offered.expanded.size + boot.map(|part| part.size).sum::<u64>();
        Ok(Self {
            product: offered.name.clone(),
            running: ReleaseId::of(&node.release),
            offered: ReleaseId::of(offered),
            offer,
            slot: node.target(),
            fetched,
            patch: patches.as_ref().map(Patches::size),
            written: if new { written } else { 0 },
            hardware: hardware.clone(),
            certificates: certificates.clone(),
            room: whole.room(node, fetched, &images)?,
            images,
            restart: offer != OfferStatus::Runs,
            kubernetes: node.kubernetes.clone(),
            brought_kubernetes: offered.kubernetes.clone(),
            kubernetes_step: kubernetes_step(node.kubernetes.as_ref(), offered)?,
            removed_apis,
            removed_apis_unknown,
            verified: unverified.is_none(),
            unverified: unverified.as_ref().map(ToString::to_string),
            trust: trust.to_string(),
            trust_warning: trust.needs_warning(),
            rollback_index: offered.rollback_index,
        })
    }

    pub(super) fn text(&self) -> String {
        let Self { product, running, offered, slot, .. } = self;
        let head = match self.offer {
            OfferStatus::Runs => {
                return format!("{product} {} runs already; there is nothing to do.\n", running.version);
            }
            OfferStatus::Staged => format!("{product} {} is in slot {slot} already.\n", offered.version),
            OfferStatus::New => {
                let [fetched, written] = [self.fetched, self.written].map(ByteSize::bytes);
                let patch =
                    self.patch.map(|_| ", the OS image as a patch to the one that runs").unwrap_or_default();
                format!(
                    "{product} {} in place of {}\n  fetch    {fetched}{patch}\n  write    slot {slot}, {written}, each byte read back\n",
                    offered.version, running.version
                )
            }
        };
        let images = match self.images.images.len() {
            0 => "nothing new".to_owned(),
            count => format!("{count} to add, {}", ByteSize::bytes(self.images.fetch)),
        };
        let rollback = match self.rollback_index {
            index if index.is_zero() => String::new(),
            index => format!("  rollback index {index}\n"),
        };
        let room = self.room.summary().map(|room| format!("  room     {room}\n")).unwrap_or_default();
        let CertificateVerdict { ended, soon } = &self.certificates;
        let ends = ended.iter().chain(soon).cloned();
        let apis = self.removed_apis.iter().map(|api| format!("{api}. {}", RemovedApi::HINT));
        let unknown = self.removed_apis_unknown.iter().map(|why| {
            format!(
                "whether the cluster uses APIs that its next Kubernetes no longer has is not known: {why}"
            )
        });
        let warnings: String =
            ends.chain(apis).chain(unknown).map(|line| format!("  warning  {line}\n")).collect();
        format!(
            "{head}  {:<7}  {}\n{rollback}  hardware {}\n{warnings}  images   {images}\n{room}  restart  once; up to three tries, then {} again\n  stays    configuration, data, membership in the cluster{}\n",
            if self.trust_warning { "warning" } else { "release" },
            if self.trust_warning { format!("it is {}", self.trust) } else { self.trust.clone() },
            self.hardware.summary(),
            running.version,
            self.kubernetes_text()
        )
    }

    fn kubernetes_text(&self) -> String {
        let (Some(runs), Some(brought)) = (&self.kubernetes, &self.brought_kubernetes) else {
            return String::new();
        };
        match self.kubernetes_step {
            KubernetesStep::None => format!(", Kubernetes {runs}"),
            KubernetesStep::Newer => format!(
                "\n           Kubernetes {runs}; the release brings {brought}: `installer update kubernetes` moves it afterwards"
            ),
            KubernetesStep::Older => {
                format!(
                    "\n           Kubernetes {runs}; the release brings {brought}, which is older and not used"
                )
            }
        }
    }
}

/// The APIs that the cluster uses and the Kubernetes of the release no longer has.
///
/// # Errors
/// Why they are not known, a clause.
fn removed_apis(node: &UpdatedNode, offered: &Release) -> Result<Vec<RemovedApi>, String> {
    match (&node.kubernetes, &offered.kubernetes) {
        (Some(runs), Some(brought)) => RemovedApi::in_use(Path::new("/"), runs.distribution(), runs, brought),
        _ => Ok(Vec::new()),
    }
}

/// Shows what the update would do.
pub(crate) fn check(request: &UpdateRequest, context: &Context) -> Result<()> {
    let node = UpdatedNode::read(Path::new("/"))?;
    let offered = open(&node, request, context)?;
    let plan = UpdatePlan::of(&node, &offered)?;
    if let Some(failure) = &offered.unverified {
        context.progress.warn(
            "update",
            &format!("unverified, so `fetch`, `stage` and `apply` will refuse it: {failure}"),
        );
    }
    context.show(&plan, || plan.text())
}
