//! The changes of the fleet since a version of its list, so that a program that asks again gets only those.
//!
//! A version is a number that grows with each change that a request finds, behind a random word of the server's start: a version
//! of another start is none of this one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use anyhow::Result;
use base::digest::Digest;
use serde::Serialize;

use super::view::{FleetView, MachineRow};
use crate::machines::token;

/// The most machines that are remembered after they were removed. To a version from before that the whole list is the answer.
const REMOVED: usize = 1000;

/// The latest state of each part of the list, with the version in which it came about.
#[derive(Debug, Default)]
pub struct FleetHistory {
    epoch: String,
    version: u64,
    /// Each machine as it was seen last.
    rows: HashMap<String, RowVersion>,
    removed: VecDeque<(String, u64)>,
    /// The latest version of which not all removals are known.
    forgotten: u64,
    parts: HashMap<FleetPart, PartVersion>,
}

#[derive(Clone, Debug)]
struct RowVersion {
    row: Arc<MachineRow>,
    version: u64,
}

#[derive(Clone, Copy, Debug)]
struct PartVersion {
    digest: Digest,
    version: u64,
}

/// A part of the list beside its machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FleetPart {
    Summary,
    Conflicts,
    NotHeardOf,
    Notices,
}

/// The changes since a version, or everything.
#[derive(Clone, Copy, Debug)]
pub struct FleetChanges<'a> {
    history: &'a FleetHistory,
    since: Option<u64>,
}

impl FleetHistory {
    /// Compares the whole fleet with what was known of it. The time at which a machine was heard of last is no change.
    pub fn observe(&mut self, view: &FleetView) -> Result<()> {
        if self.epoch.is_empty() {
            self.epoch = hex::encode(token::random::<8>()?);
        }
        let next = self.version + 1;
        let mut last: HashMap<String, RowVersion> = HashMap::with_capacity(view.machines.len());
        let mut is_changed = false;
        for row in &view.machines {
            let known = self.rows.remove(&row.id).filter(|known| known.row.is_same_but_for_time(row));
            is_changed |= known.is_none();
            let version = known.map_or(next, |known| known.version);
            last.insert(row.id.clone(), RowVersion { row: Arc::clone(row), version });
        }
        is_changed |= !self.rows.is_empty();
        self.removed.retain(|(id, _)| !last.contains_key(id));
        self.removed.extend(self.rows.drain().map(|(id, _)| (id, next)));
        while self.removed.len() > REMOVED {
            let (_, version) = self.removed.pop_front().unwrap_or_default();
            self.forgotten = version;
        }
        self.rows = last;
        for (part, digest) in [
            (FleetPart::Summary, digest(&view.summary)?),
            (FleetPart::Conflicts, digest(&view.conflicts)?),
            (FleetPart::NotHeardOf, digest(&view.not_heard_of)?),
            (FleetPart::Notices, digest(&view.notices)?),
        ] {
            if self.parts.get(&part).is_none_or(|known| known.digest != digest) {
                self.parts.insert(part, PartVersion { digest, version: next });
                is_changed = true;
            }
        }
        if is_changed {
            self.version = next;
        }
        Ok(())
    }

    #[must_use]
    pub fn version(&self) -> String {
        format!("{}-{}", self.epoch, self.version)
    }

    /// The changes since `since`, which a client sent; everything if it is not a version of this start, or too old.
    #[must_use]
    pub fn changes(&self, since: Option<&str>) -> FleetChanges<'_> {
        let number = |since: &str| since.strip_prefix(&self.epoch)?.strip_prefix('-')?.parse::<u64>().ok();
        let known = |since: &u64| (self.forgotten..=self.version).contains(since);
        FleetChanges { history: self, since: since.and_then(number).filter(known) }
    }
}

impl FleetChanges<'_> {
    /// The version that the changes follow; none where they are everything.
    #[must_use]
    pub fn since(&self) -> Option<String> {
        self.since.map(|since| format!("{}-{since}", self.history.epoch))
    }

    #[must_use]
    pub fn has(&self, row: &MachineRow) -> bool {
        self.is_newer(self.history.rows.get(&row.id).map(|known| known.version))
    }

    #[must_use]
    pub fn has_part(&self, part: FleetPart) -> bool {
        self.is_newer(self.history.parts.get(&part).map(|known| known.version))
    }

    /// The machines that are no longer in the fleet.
    pub fn removed(&self) -> impl Iterator<Item = &str> {
        let since = self.since;
        let removed = self.history.removed.iter();
        removed.filter(move |(_, version)| since.is_some_and(|since| *version > since)).map(|(id, _)| &**id)
    }

    fn is_newer(&self, known: Option<u64>) -> bool {
        self.since.is_none_or(|since| known.is_none_or(|known| known > since))
    }
}

fn digest(value: &impl Serialize) -> Result<Digest> {
    Ok(Digest::of(&serde_json::to_vec(value)?))
}
