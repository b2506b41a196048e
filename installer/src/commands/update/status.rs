//! The slots of this node and its last updates, for `installer update status`.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use base::failure::{Class, Failure};
use base::program::Context;
use cluster::kept_version::NodeKubernetes;
use cluster::version_step::MoveRecord;
use machine::installed_node::InstalledNode;
use machine::release_origin::ReleaseOrigin;
use machine::update_state::{ReleaseId, ReleaseVerdict};
use model::boot::Slot;
use model::boot::record::{BootFailureWord, SlotState, UpdateSlot};
use node::update::{UpdateStage, UpdatedNode, fetched_release};

#[derive(Debug, Serialize)]
pub(super) struct UpdateStatus {
    /// Who has signed the release that runs, and whether the node ever had an unsigned one; none without a node document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trust: Option<ReleaseOrigin>,
    /// What the last update has come to: `idle`, `staged`, `pending`, `trial`, `rolled-back`.
    pub(super) state: &'static str,
    pub(super) running: Slot,
    pub(super) slots: Vec<SlotStatus>,
    /// The version that is staged or on trial, or was taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offered: Option<String>,
    /// What was fetched and is in no slot yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    fetched: Option<ReleaseId>,
    /// Starts that a slot on trial has left.
    pub(super) tries_left: u8,
    /// Starts of a good slot in a row that were not reported as good.
    missed: u8,
    /// GRUB's reason for the last failed start.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<BootFailureWord>,
    /// Disks of a mirror whose boot record cannot be changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unwritten: Vec<String>,
    /// Why the last update does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The newest last.
    verdicts: Vec<ReleaseVerdict>,
    /// The versions of Kubernetes; none where the OS has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<NodeKubernetes>,
    /// A step to another version that was begun and has not come to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes_step: Option<MoveRecord>,
}

#[derive(Debug, Serialize)]
pub(super) struct SlotStatus {
    pub(super) slot: Slot,
    /// None for the recovery system, which has no state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<SlotState>,
    /// The release in it, where it has a whole boot volume.
    pub(super) release: Option<ReleaseId>,
    /// Whether it starts next.
    next: bool,
}

impl UpdateStatus {
    pub(super) fn of(node: &UpdatedNode) -> Self {
        let standing = UpdateStage::of(node);
        let state = match &standing {
            UpdateStage::Idle | UpdateStage::Good => "idle",
            UpdateStage::Staged => "staged",
            UpdateStage::Pending => "pending",
            UpdateStage::Trial => "trial",
            UpdateStage::RolledBack(_) => "rolled-back",
        };
        let reason = match standing {
            UpdateStage::RolledBack(reason) => Some(reason),
            _ => None,
        };
        let staged = node.memory.staged.as_ref().map(|staged| &staged.release);
        let taken_back = node.memory.verdicts.last().filter(|last| !last.good).map(|last| &last.release);
        let offered = staged.or(taken_back).map(|release| release.version.clone());
        let next = node.record.once.unwrap_or(Slot::from(node.record.order));
        let slot = |slot: Slot| SlotStatus {
            slot,
            state: UpdateSlot::of(slot).map(|slot| node.record.state(slot)),
            release: node.slots.slot(slot).release().map(|release| ReleaseId::of(&release)),
            next: slot == next,
        };
        Self {
            trust: InstalledNode::open(node.root()).ok().map(|node| ReleaseOrigin::of(&node)),
            state,
            running: node.slots.running,
            slots: Slot::ALL.into_iter().map(slot).collect(),
            offered,
            fetched: fetched_release(Path::new("/")),
            tries_left: node.record.left,
            missed: node.record.miss,
            why: node.record.why.clone(),
            unwritten: node.unwritten.clone(),
            reason,
            verdicts: node.memory.verdicts.clone(),
            kubernetes: NodeKubernetes::look(Path::new("/")),
            kubernetes_step: MoveRecord::read(Path::new("/")),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for SlotStatus { slot, state, release, next } in &self.slots {
            let version = release.as_ref().map_or("nothing", |release| &release.version);
            let state = state.map(SlotState::name).unwrap_or_default();
            let mut notes = Vec::new();
            if *slot == self.running {
                notes.push("runs".to_owned());
            }
            if *next {
                notes.push("starts next".to_owned());
            }
            if state == SlotState::Try.name() {
                notes.push(format!("{} tries left", self.tries_left));
            }
            let line = format!("{:<9} {version:<20} {state:<6} {}", slot.to_string(), notes.join(", "));
            text.push_str(&format!("{}\n", line.trim_end()));
        }
        if let Some(ReleaseId { version, .. }) = &self.fetched {
            text.push_str(&format!("fetched   {version}; `installer update stage` writes it\n"));
        }
        let update = match (self.state, &self.reason) {
            ("staged", _) => "a release is staged; `installer update apply` tries it".to_owned(),
            ("pending", _) => "the next restart tries a release".to_owned(),
            ("trial", _) => "the running release has not passed its health check yet".to_owned(),
            ("rolled-back", Some(reason)) => format!("rolled back: {reason}"),
            _ => "nothing under way".to_owned(),
        };
        text.push_str(&format!("update    {update}\n"));
        if let Some(trust) = &self.trust {
            let lines = trust.lines();
            lines.iter().for_each(|(name, value)| text.push_str(&format!("{name:<9} {value}\n")));
        }
        for trouble in &self.unwritten {
            text.push_str(&format!("warning   {trouble}\n"));
        }
        if let Some(kubernetes) = &self.kubernetes {
            text.push_str(&format!("{:<9} {}\n", "kubernetes", kubernetes.text()));
        }
        if let Some(step) = &self.kubernetes_step {
            text.push_str(&format!("{:<9} {step}; go on with it: installer update kubernetes\n", ""));
        }
        for verdict in &self.verdicts {
            let ReleaseVerdict { release, slot, good, reason, at } = verdict;
            let how = if *good { "good".to_owned() } else { format!("rolled back: {reason}") };
            text.push_str(&format!("{at}  {} in slot {}: {how}\n", release.version, Slot::from(*slot)));
        }
        text
    }
}

/// Prints the status; an error if the last update was taken back.
pub(crate) fn status(context: &Context) -> Result<()> {
    let status = UpdateStatus::of(&UpdatedNode::read(Path::new("/"))?);
    context.show(&status, || status.text())?;
    if status.state != "rolled-back" {
        return Ok(());
    }
    let what = "the last update was taken back";
    Err(Failure::new(Class::RolledBack, what)
        .because(status.reason.clone().unwrap_or_default())
        .hint("Use another release; this one is not tried again by itself.")
        .into())
}
