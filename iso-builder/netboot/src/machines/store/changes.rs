//! Which machines' records were changed, so that whoever shows all of them reads those alone again.
//!
//! A store that only one process changes keeps them in memory ([`ChangedMachines`]). Others ask the database
//! ([`super::postgres`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::machines::id::MachineId;

/// The most machines that are remembered: anybody on the network can invent machines, which come and go.
const MOST: usize = 100_000;

/// How much of a store was read, for the next read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeMark {
    /// Marks of others are none of this store. Empty where a process reads no other store.
    pub(super) origin: String,
    pub(super) number: u64,
}

/// What was changed since a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentChanges {
    /// For the next read.
    pub mark: ChangeMark,
    /// The machines whose records, runs or logs were changed, perhaps with some that were not. Those that were removed are only
    /// among them in a store that one process changes. None if not all are known.
    pub machines: Option<BTreeSet<MachineId>>,
}

/// The machines that were changed in a store that only this process changes, with the number of the latest change of each.
#[derive(Debug, Default)]
pub(super) struct ChangedMachines(Mutex<Changes>);

#[derive(Debug, Default)]
struct Changes {
    last: u64,
    /// The latest change of which not all machines are known.
    forgotten: u64,
    machines: HashMap<MachineId, u64>,
}

impl ChangedMachines {
    /// Adds the machines of a transaction that has ended.
    pub(super) fn add(&self, machines: BTreeSet<MachineId>) {
        if machines.is_empty() {
            return;
        }
        let mut changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        changes.last += 1;
        let last = changes.last;
        if changes.machines.len() + machines.len() > MOST {
            changes.machines.clear();
            changes.forgotten = last;
        }
        changes.machines.extend(machines.into_iter().map(|id| (id, last)));
    }

    /// What was changed after the change `since`.
    pub(super) fn since(&self, since: Option<&ChangeMark>) -> RecentChanges {
        let changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = since.map(|mark| mark.number);
        let since = since.filter(|since| (changes.forgotten..=changes.last).contains(since));
        let after = |since: u64| {
            let machines = changes.machines.iter().filter(|(_, change)| **change > since);
            machines.map(|(id, _)| *id).collect()
        };
        let mark = ChangeMark { origin: String::new(), number: changes.last };
        RecentChanges { mark, machines: since.map(after) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_after_a_change_is_known_until_there_is_too_much_of_it() {
        let changed = ChangedMachines::default();
        let [one, other]: [MachineId; 2] = std::array::from_fn(|_| MachineId::random());
        let since = |number: Option<u64>| {
            let mark = number.map(|number| ChangeMark { origin: String::new(), number });
            let RecentChanges { mark, machines } = changed.since(mark.as_ref());
            (mark.number, machines)
        };
        assert_eq!(since(None), (0, None));
        assert_eq!(since(Some(0)), (0, Some(BTreeSet::new())));
        changed.add([one].into());
        changed.add(BTreeSet::new());
        changed.add([one, other].into());
        assert_eq!(since(Some(0)), (2, Some([one, other].into())));
        assert_eq!(since(Some(2)), (2, Some(BTreeSet::new())));
        assert_eq!(since(Some(3)), (2, None), "of another store");
        changed.add((1..MOST).map(|_| MachineId::random()).collect());
        assert_eq!(since(Some(2)).1, None);
        assert_eq!(since(Some(3)), (3, Some(BTreeSet::new())));
        changed.add([other].into());
        assert_eq!(since(Some(3)), (4, Some([other].into())));
    }
}
