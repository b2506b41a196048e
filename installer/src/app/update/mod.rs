//! Updates of this node, for `installer update`.

mod cluster;
mod pod;
mod source;
mod status;
mod unit;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::execute::{
    Cancel, MissingImages, RunningContainerd, ask_for, import_missing, missing_images, slot_payloads,
};
use crate::node::health::NodeProbe;
use crate::node::paths::DOCUMENT;
use crate::node::update_state::ReleaseId;
use crate::update::{Allowed, Offer, RolledBack, Running, UpdateLock, UpdatedNode, decide};
use base::command::{Runner, SystemRunner};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::program::Context;
use base::size::ByteSize;
use medium::sources::{PayloadPlace, PayloadSource};
use model::boot::record::UpdateSlot;
use model::config::{self, Images, Role};
use model::release::Release;

pub(crate) use cluster::{Announcement, ClusterRequest, PATIENCE, come_back};
pub(crate) use pod::from_pod;
pub(crate) use status::status;
pub(crate) use unit::in_unit;

/// Which release is wanted, and what is allowed.
#[derive(Debug)]
pub(crate) struct UpdateRequest {
    pub(crate) from: String,
    pub(crate) allowed: Allowed,
    /// SHA-256 of its manifest.
    pub(crate) sha256: Option<Digest>,
}

/// What an update would do.
#[derive(Debug, Serialize)]
struct UpdatePlan {
    product: String,
    running: ReleaseId,
    offered: ReleaseId,
    offer: Offer,
    /// The slot that is written.
    slot: UpdateSlot,
    /// Bytes of the OS that come over a network.
    fetched: u64,
    /// Bytes that are written into the slot.
    written: u64,
    /// Container images that the node gets before it restarts.
    images: MissingImages,
    /// Whether the node restarts.
    restart: bool,
}

impl UpdatePlan {
    fn of(node: &UpdatedNode, offered: &Offered) -> Result<Self> {
        let Offered { source, release: offered, offer, seeding } = offered;
        let offer = *offer;
        let parts = slot_payloads(offered);
        let away = parts.iter().filter(|part| source.place(part) == Some(PayloadPlace::Network));
        let fetched = away.map(|part| part.size).sum();
        let written = parts.iter().map(|part| part.size).sum();
        let new = offer == Offer::New;
        Ok(Self {
            product: offered.name.clone(),
            running: ReleaseId::of(&node.release),
            offered: ReleaseId::of(offered),
            offer,
            slot: node.target(),
            fetched: if new { fetched } else { 0 },
            written: if new { written } else { 0 },
            images: match seeding {
                Some(role) if offer != Offer::Runs => missing_images(&containerd(offered), offered, *role)?,
                _ => MissingImages::default(),
            },
            restart: offer != Offer::Runs,
        })
    }

    fn text(&self) -> String {
        let Self { product, running, offered, slot, .. } = self;
        let head = match self.offer {
            Offer::Runs => {
                return format!("{product} {} runs already; there is nothing to do.\n", running.version);
            }
            Offer::Staged => format!("{product} {} is in slot {slot} already.\n", offered.version),
            Offer::New => {
                let [fetched, written] = [self.fetched, self.written].map(ByteSize::bytes);
                format!(
                    "{product} {} in place of {}\n  fetch    {fetched}\n  write    slot {slot}, {written}, each byte read back\n",
                    offered.version, running.version
                )
            }
        };
        let images = match self.images.images.len() {
            0 => "nothing new".to_owned(),
            count => format!("{count} to add, {}", ByteSize::bytes(self.images.fetch)),
        };
        format!(
            "{head}  images   {images}\n  restart  once; up to three tries, then {} again\n  stays    configuration, data, membership in the cluster\n",
            running.version
        )
    }
}

/// An opened release with the decision on it.
struct Offered {
    source: Box<dyn PayloadSource>,
    release: Release,
    offer: Offer,
    /// The role whose container images the node gets; none if it pulls its images on demand, or the role needs none.
    seeding: Option<Role>,
}

fn containerd(release: &Release) -> RunningContainerd {
    RunningContainerd::of(release.distribution)
}

fn open(node: &UpdatedNode, request: &UpdateRequest) -> Result<Offered> {
    // An update may be what mends a node whose document has mistakes.
    let config = config::load(Path::new(DOCUMENT)).unwrap_or_default();
    let (source, release) = source::open(&request.from, request.sha256, &config)?;
    let running = Running { release: &node.release, state: node.running_state(), memory: &node.memory };
    let offer = decide(running, &release, request.allowed)?;
    source::has_slot(source.as_ref(), &release)?;
    let role = config.install.own_role();
    let seeds = config.install.images() == Images::Preload && release.images_for(role).next().is_some();
    let seeding = seeds.then_some(role);
    let source = if seeds { source::with_images(source, &config, &release)? } else { source };
    Ok(Offered { source, release, offer, seeding })
}

/// Shows what the update would do.
pub(crate) fn check(request: &UpdateRequest, context: &Context) -> Result<()> {
    let node = UpdatedNode::read(Path::new("/"))?;
    let offered = open(&node, request)?;
    let plan = UpdatePlan::of(&node, &offered)?;
    context.show(&plan, || plan.text())
}

/// Writes the release into the other slot.
pub(crate) fn stage(request: &UpdateRequest, wait: Duration, context: &Context) -> Result<()> {
    let _lock = UpdateLock::take(Path::new("/"), wait)?;
    let mut node = UpdatedNode::read(Path::new("/"))?;
    cluster::telling(&mut node, request.sha256, context, |node| stage_on(node, request, context)).map(drop)
}

/// Returns whether there is something to restart into.
fn stage_on(node: &mut UpdatedNode, request: &UpdateRequest, context: &Context) -> Result<bool> {
    let progress = &context.progress;
    if let Some(reason) = node.settle()? {
        progress.warn("update", &format!("the update before was taken back: {reason}"));
    }
    let offered = open(node, request)?;
    context.tell("update", UpdatePlan::of(node, &offered)?.text().trim_end());
    let Offered { source, release, offer, seeding } = offered;
    if offer == Offer::Runs {
        return Ok(false);
    }
    let (slot, cancel) = (node.target(), Cancel::on_signals());
    node.stage(&release, source.as_ref(), progress, &cancel)?;
    if let Some(role) = seeding {
        import_missing(&containerd(&release), source.as_ref(), &release, role, progress, &cancel)?;
    }
    context.tell(
        "update",
        &format!("{} {} is in slot {slot}, and every byte was read back.", release.name, release.version),
    );
    Ok(true)
}

/// Stages the release that is asked for, or takes the one that is staged, lets the boot loader try it, and restarts.
pub(crate) fn apply(
    request: Option<&UpdateRequest>,
    cluster: &ClusterRequest,
    reboot: bool,
    wait: Duration,
    context: &Context,
) -> Result<()> {
    let lock = UpdateLock::take(Path::new("/"), wait)?;
    let mut node = UpdatedNode::read(Path::new("/"))?;
    cluster::resume(&node, cluster, context);
    if let Some(request) = request
        && !cluster::telling(&mut node, request.sha256, context, |node| stage_on(node, request, context))?
    {
        drop(lock);
        return cluster::await_good(cluster, context);
    }
    cluster::telling(&mut node, None, context, |node| {
        cluster::leave(node, cluster, wait, context)?;
        let armed = node.arm(&NodeProbe::new(Path::new("/"), &SystemRunner));
        armed.inspect_err(|_| cluster::resume(node, cluster, context))
    })?;
    context.tell("update", "The next restart tries it.");
    restart(reboot, context)
}

/// Goes back to the release before.
pub(crate) fn roll_back(once: bool, reboot: bool, wait: Duration, context: &Context) -> Result<()> {
    let _lock = UpdateLock::take(Path::new("/"), wait)?;
    let mut node = UpdatedNode::read(Path::new("/"))?;
    match node.roll_back(once)? {
        RolledBack::Called => {
            context.tell(
                "update",
                "What is staged will not be tried. To try it after all: installer update apply",
            );
            Ok(())
        }
        RolledBack::To(slot) => {
            let version = node.slots.slot(slot.into()).release().map(|release| release.version);
            let until = if once { "for one start" } else { "from the next restart on" };
            context.tell(
                "update",
                &format!("Slot {slot} starts {until}: version {}.", version.unwrap_or_default()),
            );
            restart(reboot, context)
        }
    }
}

fn restart(wanted: bool, context: &Context) -> Result<()> {
    if !wanted {
        return Ok(());
    }
    context.tell("update", "The machine restarts now.");
    reboot(&SystemRunner)
}

/// Asks the service manager to restart the machine.
pub(crate) fn reboot(runner: &dyn Runner) -> Result<()> {
    ask_for("reboot", runner).map_err(|error| {
        let hint = "Restart the machine by other means: the boot record is written.";
        Failure::new(Class::Unexpected, "asking for a restart")
            .because(anyhow::anyhow!("{error:#}"))
            .hint(hint)
            .into()
    })
}
