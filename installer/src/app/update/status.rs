//! The slots of this node and what became of its updates, for `installer update status`.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::node::update_state::{ReleaseId, ReleaseVerdict};
use crate::update::{Standing, UpdatedNode};
use base::failure::{Class, Failure};
use base::program::Context;
use model::boot::Slot;
use model::boot::record::{SlotState, UpdateSlot, Why};

#[derive(Debug, Serialize)]
struct UpdateStatus {
    /// What the last update has come to: `idle`, `staged`, `pending`, `trial`, `rolled-back`.
    state: &'static str,
    running: Slot,
    slots: Vec<SlotStatus>,
    /// Starts that a slot on trial has left.
    tries_left: u8,
    /// Starts of a good slot in a row that were not reported as good.
    missed: u8,
    /// GRUB's word for the last start that did not go as wished.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Why>,
    /// Why the last update does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The newest last.
    verdicts: Vec<ReleaseVerdict>,
}

#[derive(Debug, Serialize)]
struct SlotStatus {
    slot: Slot,
    /// None for the recovery system, which has no state.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<SlotState>,
    /// The release in it, where it has a whole boot volume.
    release: Option<ReleaseId>,
    /// Whether it starts next.
    next: bool,
}

impl UpdateStatus {
    fn of(node: &UpdatedNode) -> Self {
        let standing = Standing::of(node);
        let state = match &standing {
            // What runs is good either way.
            Standing::Idle | Standing::Good => "idle",
            Standing::Staged => "staged",
            Standing::Pending => "pending",
            Standing::Trial => "trial",
            Standing::RolledBack(_) => "rolled-back",
        };
        let reason = match standing {
            Standing::RolledBack(reason) => Some(reason),
            _ => None,
        };
        let next = node.record.once.unwrap_or(Slot::from(node.record.order));
        let slot = |slot: Slot| SlotStatus {
            slot,
            state: UpdateSlot::of(slot).map(|slot| node.record.state(slot)),
            release: node.slots.slot(slot).release().map(|release| ReleaseId::of(&release)),
            next: slot == next,
        };
        Self {
            state,
            running: node.slots.running,
            slots: Slot::ALL.into_iter().map(slot).collect(),
            tries_left: node.record.left,
            missed: node.record.miss,
            why: node.record.why.clone(),
            reason,
            verdicts: node.memory.verdicts.clone(),
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for SlotStatus { slot, state, release, next } in &self.slots {
            let version = release.as_ref().map_or("nothing", |release| &release.version);
            let state = state.map(SlotState::as_str).unwrap_or_default();
            let mut notes = Vec::new();
            if *slot == self.running {
                notes.push("runs".to_owned());
            }
            if *next {
                notes.push("starts next".to_owned());
            }
            if state == SlotState::Try.as_str() {
                notes.push(format!("{} tries left", self.tries_left));
            }
            let line = format!("{:<9} {version:<20} {state:<6} {}", slot.to_string(), notes.join(", "));
            text.push_str(&format!("{}\n", line.trim_end()));
        }
        let update = match (self.state, &self.reason) {
            ("staged", _) => "a release is staged; `installer update apply` tries it".to_owned(),
            ("pending", _) => "the next restart tries a release".to_owned(),
            ("trial", _) => "the release that runs is not known to be good yet".to_owned(),
            ("rolled-back", Some(reason)) => format!("rolled back: {reason}"),
            _ => "nothing under way".to_owned(),
        };
        text.push_str(&format!("update    {update}\n"));
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
