//! Updates of this node, for `installer update`.

mod arguments;
mod cluster_arguments;
mod kubernetes;
mod pod;
mod repair;
mod report;
mod reset;
mod restart;
mod rollout;
mod source;
mod status;
mod unit;

pub(crate) use arguments::UpdateArgs;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use base::cancel::Cancel;
use base::command::SystemRunner;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::program::Context;
use base::progress::Progress;
use base::size::ByteSize;
use cluster::health::NodeProbe;
use cluster::version_skew::KubernetesStep;
use cluster::version_step::keep_running;
use install::execute::{MissingImages, RunningContainerd, import_missing, missing_images, slot_payloads};
use machine::installed_node::InstalledNode;
use machine::trust_store;
use machine::unsigned_record::UnsignedRecord;
use machine::update_state::ReleaseId;
use medium::payload_sources::{PayloadPlace, PayloadSource};
use model::boot::Slot;
use model::boot::record::UpdateSlot;
use model::config::{Images, Role};
use model::kubernetes::KubernetesVersion;
use model::release::{Purpose, Release};
use model::release_manifest::ReleaseManifest;
use model::rollback_index::RollbackIndex;
use node::update::patched::{self, Patches, bytes_fetched};
use node::update::serve::{ServedRelease, serve};
use node::update::{
    KeptSource, OfferStatus, Rollback, RunningSystem, UpdateLock, UpdatePermissions, UpdatedNode, decide,
    fetched, forget, kubernetes_step,
};
use trust::ReleaseTrust;

pub(crate) use self::kubernetes::move_kubernetes;
pub(crate) use pod::{PodAccess, from_pod};
pub(crate) use repair::repair_node;
pub(crate) use report::tell_fleet;
pub(crate) use reset::{ResetRequest, cancel_reset, reset};
pub(crate) use restart::reboot;
use restart::{await_end, restart};
pub(crate) use rollout::{Announcement, ClusterRequest, PATIENCE, come_back};
use source::OpenedRelease;
pub(crate) use status::status;
pub(crate) use unit::{at_work, in_unit};

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

/// What an update would do.
#[derive(Debug, Serialize)]
struct UpdatePlan {
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
    /// Whether trusted keys have signed the release, its digest was given, or its sender is authenticated. If not, only `check`
    /// goes on.
    verified: bool,
    /// Who has signed the release.
    trust: String,
    /// Whether nobody but a person on this node answers for the release, or a development key.
    trust_warning: bool,
    /// That of the release.
    #[serde(skip_serializing_if = "RollbackIndex::is_zero")]
    rollback_index: RollbackIndex,
}

impl UpdatePlan {
    fn of(node: &UpdatedNode, offered: &OfferedRelease) -> Result<Self> {
        let OfferedRelease { source, release: offered, trust, offer, seeding, unverified } = offered;
        let offer = *offer;
        let parts = slot_payloads(offered);
        let away = parts.iter().filter(|part| source.place(part) == Some(PayloadPlace::Network));
        let new = offer == OfferStatus::New;
        let patches = if new { Patches::offered(&node.release, offered, source.as_ref()) } else { None };
        let fetched = away.map(|part| bytes_fetched(part, &node.release, patches.as_ref())).sum();
        let boot = parts.iter().filter(|part| part.purpose != Purpose::Rootfs);
        let written = offered.expanded.size + boot.map(|part| part.size).sum::<u64>();
        Ok(Self {
            product: offered.name.clone(),
            running: ReleaseId::of(&node.release),
            offered: ReleaseId::of(offered),
            offer,
            slot: node.target(),
            fetched: if new { fetched } else { 0 },
            patch: patches.as_ref().map(Patches::size),
            written: if new { written } else { 0 },
            images: match seeding {
                Some(role) if offer != OfferStatus::Runs => {
                    missing_images(&containerd(offered), offered, *role)?
                }
                _ => MissingImages::default(),
            },
            restart: offer != OfferStatus::Runs,
            kubernetes: node.kubernetes.clone(),
            brought_kubernetes: offered.kubernetes.clone(),
            kubernetes_step: kubernetes_step(node.kubernetes.as_ref(), offered)?,
            verified: unverified.is_none(),
            trust: trust.to_string(),
            trust_warning: trust.needs_warning(),
            rollback_index: offered.rollback_index,
        })
    }

    fn text(&self) -> String {
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
        format!(
            "{head}  {:<7}  {}\n{rollback}  images   {images}\n  restart  once; up to three tries, then {} again\n  stays    configuration, data, membership in the cluster{}\n",
            if self.trust_warning { "warning" } else { "release" },
            if self.trust_warning { format!("it is {}", self.trust) } else { self.trust.clone() },
            running.version,
            self.kubernetes_text()
        )
    }
}

impl UpdatePlan {
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

/// An opened release with the decision on it.
struct OfferedRelease {
    source: Box<dyn PayloadSource>,
    release: ReleaseManifest,
    trust: ReleaseTrust,
    offer: OfferStatus,
    /// The role whose container images the node gets; none if it pulls its images on demand, or the role needs none.
    seeding: Option<Role>,
    /// Why it may be another release than the one that was meant.
    unverified: Option<Failure>,
}

impl OfferedRelease {
    /// Fails unless the release is known to be the one that was meant.
    fn verified(self) -> Result<Self> {
        match self.unverified {
            Some(failure) => Err(failure.into()),
            None => Ok(self),
        }
    }
}

fn containerd(release: &Release) -> RunningContainerd {
    RunningContainerd::of(release.distribution)
}

/// Opens this node. Mistakes of its document are only reported: an update must be possible in spite of them.
fn this_node(progress: &Progress) -> Result<InstalledNode> {
    let node = InstalledNode::open(Path::new("/"))?;
    node.warn(&mut |line| progress.note("update", line));
    Ok(node)
}

fn open(node: &UpdatedNode, request: &UpdateRequest, context: &Context) -> Result<OfferedRelease> {
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
    let role = config.install.own_role();
    // A fetched release has brought its images to containerd. The recovery system has no containerd, and does not mount its store.
    let seeds = request.from.is_some()
        && node.slots.running != Slot::Recovery
        && config.install.images() == Images::Preload
        && release.images_for(role).next().is_some();
    let seeding = seeds.then_some(role);
    let source = if seeds { source::with_images(source, &config, &release)? } else { source };
    Ok(OfferedRelease { source, release, trust, offer, seeding, unverified })
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
        OfferStatus::Runs => "runs already; there is nothing to fetch",
        OfferStatus::Staged => "is in a slot already; there is nothing to fetch",
        OfferStatus::New => {
            let (progress, cancel) = (&context.progress, Cancel::on_signals());
            let (release, source) = (&offered.release, offered.source.as_ref());
            KeptSource::new(Path::new("/"), release, source, progress, &cancel)?.fetch(release)?;
            add_images(&offered, &cancel, context)?;
            "is on this node. To write it into the slot that does not run: installer update stage"
        }
    };
    context.tell("update", &format!("{} {} {told}", offered.release.name, offered.release.version));
    Ok(())
}

/// Serves the release that was fetched to other nodes.
pub(crate) fn serve_fetched(listen: SocketAddr, allow_unsigned: bool, context: &Context) -> Result<()> {
    let root = Path::new("/");
    let Some((directory, digest)) = fetched(root) else {
        return Err(Failure::new(Class::Invalid, "no release was fetched")
            .hint("Fetch it first: installer update fetch --from MEDIUM")
            .into());
    };
    let store = trust_store::of_node(&this_node(&context.progress)?)?.allowing_unsigned(allow_unsigned);
    let OpenedRelease { release, trust, .. } = OpenedRelease::fetched(root, None, &store)?;
    let (name, version) = (release.name.clone(), release.version.clone());
    if trust.needs_warning() {
        context.progress.warn("serve", &format!("{name} {version} is {trust}"));
    }
    // Another node takes an unsigned release over http only by its digest.
    let named = match trust {
        ReleaseTrust::Signed(_) => String::new(),
        ReleaseTrust::Unsigned(_) => format!(" --sha256 {digest}"),
    };
    let containerd = containerd(&release);
    let served = ServedRelease::new(directory, digest, (*release).clone(), containerd);
    serve(served, listen, &context.progress, &Cancel::on_signals(), |at| {
        let port = at.port();
        let told = format!(
            "{name} {version} is served on port {port}. On another node: installer update fetch --from http://ADDRESS-OF-THIS-NODE:{port}{named}"
        );
        context.tell("serve", &told);
    })
}

/// Gives the containerd that runs the images that it lacks.
fn add_images(offered: &OfferedRelease, cancel: &Cancel, context: &Context) -> Result<()> {
    let OfferedRelease { source, release, seeding, .. } = offered;
    let Some(role) = *seeding else { return Ok(()) };
    import_missing(&containerd(release), source.as_ref(), release, role, &context.progress, cancel)?;
    Ok(())
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

/// This node, with a verdict on the update before.
fn settled(context: &Context) -> Result<UpdatedNode> {
    let mut node = UpdatedNode::read(Path::new("/"))?;
    if let Some(reason) = node.settle()? {
        context.progress.warn("update", &format!("the update before was taken back: {reason}"));
    }
    node.unwritten.iter().for_each(|trouble| context.progress.warn("update", trouble));
    Ok(node)
}

/// Writes the release into the other slot.
pub(crate) fn stage(request: &UpdateRequest, wait: Duration, context: &Context) -> Result<()> {
    let _lock = UpdateLock::take(Path::new("/"), wait)?;
    let mut node = settled(context)?;
    rollout::telling(&mut node, request.sha256, context, |node| stage_on(node, request, &|_| Ok(()), context))
        .map(drop)
}

/// Writes the release into the other slot if `allow` permits it; returns whether there is something to restart into.
fn stage_on(
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
    forget(root)?;
    context.tell(
        "update",
        &format!("{} {} is in slot {slot}, and every byte was read back.", release.name, release.version),
    );
    Ok(true)
}

/// Stages the requested or fetched release unless one is staged, lets the boot loader try it, and restarts.
pub(crate) fn apply(
    request: &UpdateRequest,
    cluster: &ClusterRequest,
    reboot: bool,
    wait: Duration,
    context: &Context,
) -> Result<()> {
    let lock = UpdateLock::take(Path::new("/"), wait)?;
    let mut node = settled(context)?;
    rollout::resume(&node, cluster, context);
    let tell = |line: &str| context.tell("update", line);
    // Missing access, or a node that may not leave, has to be reported before staging, which takes minutes.
    let node_departure = cluster.node_departure(&tell)?;
    let allow = |release: &ReleaseId| rollout::may_leave(release, cluster, node_departure.as_ref());
    let wanted = request.from.is_some() || node.memory.staged.is_none() && fetched(Path::new("/")).is_some();
    if wanted
        && !rollout::telling(&mut node, request.sha256, context, |node| {
            stage_on(node, request, &allow, context)
        })?
    {
        drop(lock);
        return rollout::await_good(cluster, context);
    }
    rollout::telling(&mut node, None, context, |node| {
        rollout::leave(node, cluster, node_departure.as_ref(), wait)?;
        let armed = node.arm(&NodeProbe::new(Path::new("/"), &SystemRunner));
        armed.inspect_err(|_| rollout::resume(node, cluster, context))
    })?;
    if let Some(why) = &node.lost_memory {
        let text = format!("the node will not remember this update: {why}");
        context.progress.warn("update", &text);
    }
    context.tell("update", "The next restart tries it.");
    restart(reboot, context)?;
    if reboot && cluster.is_of_pod() { await_end(&Cancel::on_signals()) } else { Ok(()) }
}

/// Goes back to the release before.
pub(crate) fn roll_back(once: bool, reboot: bool, wait: Duration, context: &Context) -> Result<()> {
    let _lock = UpdateLock::take(Path::new("/"), wait)?;
    let mut node = UpdatedNode::read(Path::new("/"))?;
    match node.roll_back(once)? {
        Rollback::CalledOff => {
            tell_fleet(&node, &context.progress);
            context.tell(
                "update",
                "The staged release will not be tried. To try it after all: installer update apply",
            );
            Ok(())
        }
        Rollback::To(slot) => {
            let version = node.slots.slot(slot.into()).release().map(|release| release.version.clone());
            tell_fleet(&node, &context.progress);
            let until = if once { "for one start" } else { "from the next restart on" };
            context.tell(
                "update",
                &format!("Slot {slot} starts {until}: version {}.", version.unwrap_or_default()),
            );
            restart(reboot, context)
        }
    }
}

/// Starts a slot once.
pub(crate) fn start(slot: Slot, reboot: bool, context: &Context) -> Result<()> {
    let _lock = UpdateLock::take(Path::new("/"), Duration::ZERO)?;
    let mut node = UpdatedNode::read(Path::new("/"))?;
    let Some(release) = node.slots.slot(slot).release() else {
        let what =
            format!("slot {slot} has no commit mark, or its boot volume is damaged: nothing starts from it");
        return Err(Failure::new(Class::Hardware, what).hint("See `installer update status`.").into());
    };
    node.start_once(slot)?;
    context.tell(
        "update",
        &format!("Slot {slot} starts at the next restart, once: version {}.", release.version),
    );
    restart(reboot, context)
}
