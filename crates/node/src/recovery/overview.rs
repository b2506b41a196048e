//! The contents of the page of the recovery system: why it runs, and which slots can be started.

use std::path::Path;

use anyhow::Result;

use super::notices::RecoveryNotices;
use crate::pending_reset::PendingReset;
use crate::update::NodeSlots;
use base::command::Runner;
use machine::installed_node::InstalledNode;
use machine::network::addresses::addresses;
use machine::node_release as release;
use model::boot::record::{BootFailureWord, MISSES, SlotState, UpdateSlot};
use model::boot::{BootParameters, Slot};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryFacts {
    /// Product and version.
    pub product: String,
    /// Why the recovery system runs, as far as is known.
    pub why: String,
    /// `Slot a`, `Slot b` and `Recovery`, each with version and state.
    pub slots: Vec<[String; 3]>,
    /// One network device and its addresses a text.
    pub addresses: Vec<String>,
    pub notices: RecoveryNotices,
}

impl RecoveryFacts {
    /// The recovery system at `root`. Mounts nothing: a reset may be under way.
    pub fn gather(root: &Path, installed: &BootParameters, runner: &dyn Runner) -> Result<Self> {
        let release = release::read(root)?;
        let slots = NodeSlots::find(root, installed)?;
        let record = slots.change_record(|_| ())?.record;
        let mut any_good = false;
        let rows = Slot::ALL.map(|slot| {
            let version = slots.slot(slot).release().map(|release| release.version.clone());
            let state = UpdateSlot::of(slot).map(|slot| record.state(slot));
            any_good |= state == Some(SlotState::Good) && version.is_some();
            [
                if slot == Slot::Recovery { "Recovery".to_owned() } else { format!("Slot {slot}") },
                version.unwrap_or_else(|| "nothing".to_owned()),
                state.map_or("runs", SlotState::name).to_owned(),
            ]
        });
        let why = match (PendingReset::read(root), record.why.as_ref().map(BootFailureWord::as_str)) {
            (Some(pending), _) => format!("a reset of level {} is requested", pending.level.as_str()),
            (None, Some(BootFailureWord::IMAGE)) => {
                "the OS image of a slot could not be opened: its manifest is damaged, or not the one that was signed".to_owned()
            }
            (None, _) if !any_good => "neither slot is good and can be loaded".to_owned(),
            (None, Some(BootFailureWord::MISS)) => {
                format!("a slot was started {MISSES} times and was never reported as good")
            }
            (None, Some(BootFailureWord::LOAD)) => {
                "a slot could not be loaded, or the recovery system was requested".to_owned()
            }
            (None, _) => "the recovery system was requested, or no slot could be loaded".to_owned(),
        };
        // The recovery system also serves nodes without a usable document.
        let node = InstalledNode::open(root).ok();
        Ok(Self {
            product: format!("{} {}", release.name, release.version),
            why,
            slots: rows.into(),
            addresses: addresses(node.as_ref().map(|node| &node.config), runner),
            notices: RecoveryNotices::read(root),
        })
    }
}
