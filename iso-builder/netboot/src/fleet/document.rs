//! The JSON of the fleet: the whole list, or what has changed in it.

use serde::Serialize;

use super::filter::MachineFilter;
use super::history::{FleetChanges, FleetPart};
use super::view::{ConflictRow, FleetView, MachineRow, StageCount, VERSION};

/// The JSON of `/v1/fleet`: the whole list, or what has changed since a version of it.
#[derive(Clone, Debug, Serialize)]
pub struct FleetDocument<'a> {
    v: u32,
    time: &'a str,
    version: String,
    /// The version that this follows; null where this is everything.
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a [StageCount]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conflicts: Option<&'a [ConflictRow]>,
    machines: Vec<&'a MachineRow>,
    /// The ids of machines that the client may have and that are no longer in the list that it asks for.
    removed: Vec<&'a str>,
    more: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_heard_of: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notices: Option<&'a [String]>,
}

impl<'a> FleetDocument<'a> {
    /// The part of `view` that `filter` selects; `changes` are newer than the client knows.
    #[must_use]
    pub fn new(
        view: &'a FleetView,
        filter: &MachineFilter,
        version: String,
        changes: &'a FleetChanges<'_>,
    ) -> Self {
        let changed = view.machines.iter().filter(|row| changes.has(row));
        let (machines, others): (Vec<_>, Vec<_>) = changed.partition(|row| filter.matches(row));
        // A machine that has changed may have matched before.
        let left = others.into_iter().filter(|_| changes.since().is_some()).map(|row| &*row.id);
        fn part<'a, T>(changes: &FleetChanges<'_>, part: FleetPart, all: &'a [T]) -> Option<&'a [T]> {
            changes.has_part(part).then_some(all)
        }
        Self {
            v: VERSION,
            time: &view.time,
            version,
            since: changes.since(),
            summary: part(changes, FleetPart::Summary, &view.summary),
            conflicts: part(changes, FleetPart::Conflicts, &view.conflicts),
            machines,
            removed: changes.removed().chain(left).collect(),
            more: view.more,
            not_heard_of: part(changes, FleetPart::NotHeardOf, &view.not_heard_of),
            notices: part(changes, FleetPart::Notices, &view.notices),
        }
    }
}
