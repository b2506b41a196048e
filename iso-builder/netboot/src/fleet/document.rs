//! The JSON of the fleet: the whole list, or what has changed in it.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use super::history::{FleetChanges, FleetPart};
use super::listing;
use super::query::{ListQuery, MachineOrder};
use super::view::{ConflictRow, FleetView, MachineRow, StageCount, VERSION};
use crate::machines::access_token::TokenRole;

/// The JSON of `/v1/fleet`: the whole list, or what has changed since a version of it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
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
    machines: Vec<Cow<'a, MachineRow>>,
    /// The ids of machines that the client may have and that are no longer in the list that it asks for.
    removed: Vec<&'a str>,
    /// How many machines follow, which a limit leaves out.
    more: usize,
    /// The machine that they follow.
    next: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_heard_of: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notices: Option<&'a [String]>,
}

impl<'a> FleetDocument<'a> {
    /// The part of `view` that `query` selects, for a client of this role; `changes` are newer than the client knows.
    #[must_use]
    pub fn new(
        view: &'a FleetView,
        query: &ListQuery,
        role: TokenRole,
        version: String,
        changes: &'a FleetChanges<'_>,
    ) -> Self {
        let changed = view.machines.iter().map(|row| &**row).filter(|row| changes.has(row));
        let (mut machines, others): (Vec<_>, Vec<_>) = changed.partition(|row| query.filter.matches(row));
        // A machine that has changed may have matched before.
        let left = others.into_iter().filter(|_| changes.since().is_some()).map(|row| &*row.id);
        let (mut more, mut next) = (0, None);
        if let Some(limit) = query.limit {
            // Ids stay, whatever becomes of a machine, so that a client that asks for one part after the other misses none.
            let after = query.after.map(|id| id.to_string());
            machines.retain(|row| after.as_ref().is_none_or(|after| row.id > *after));
            machines.sort_by(|one, other| one.id.cmp(&other.id));
            more = machines.len().saturating_sub(limit);
            machines.truncate(limit);
            next = machines.last().filter(|_| more > 0).map(|row| &*row.id);
        } else {
            machines.sort_by(|one, other| listing::compare(one, other, MachineOrder::Attention));
        }
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
            machines: machines.into_iter().map(|row| allowed(row, role)).collect(),
            removed: changes.removed().chain(left).collect(),
            more,
            next,
            not_heard_of: part(changes, FleetPart::NotHeardOf, &view.not_heard_of),
            notices: part(changes, FleetPart::Notices, &view.notices),
        }
    }
}

/// A machine without the actions that a client of this role cannot do.
fn allowed(row: &MachineRow, role: TokenRole) -> Cow<'_, MachineRow> {
    match role.may_act() || row.actions.is_empty() {
        true => Cow::Borrowed(row),
        false => Cow::Owned(MachineRow { actions: Vec::new(), ..row.clone() }),
    }
}
