//! Which machines' records were changed, so that whoever shows all of them reads those alone again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::machines::id::MachineId;

/// The most machines that are remembered: anybody on the network can invent machines, which come and go.
const MOST: usize = 100_000;

/// The machines that were changed in a store that only this process changes, with the number of the latest change of each.
#[derive(Debug, Default)]
pub struct ChangedMachines(Mutex<Changes>);

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

    /// The number of the last change, and the machines that were changed after the change `since`; none if not all are known.
    pub fn since(&self, since: Option<u64>) -> (u64, Option<BTreeSet<MachineId>>) {
        let changes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = since.filter(|since| (changes.forgotten..=changes.last).contains(since));
        let after = |since: u64| {
            let machines = changes.machines.iter().filter(|(_, change)| **change > since);
            machines.map(|(id, _)| *id).collect()
        };
        (changes.last, since.map(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_after_a_change_is_known_until_there_is_too_much_of_it() {
        let changed = ChangedMachines::default();
        let [one, other]: [MachineId; 2] = std::array::from_fn(|_| MachineId::random());
        assert_eq!(changed.since(None), (0, None));
        assert_eq!(changed.since(Some(0)), (0, Some(BTreeSet::new())));
        changed.add([one].into());
        changed.add(BTreeSet::new());
        changed.add([one, other].into());
        assert_eq!(changed.since(Some(0)), (2, Some([one, other].into())));
        assert_eq!(changed.since(Some(2)), (2, Some(BTreeSet::new())));
        assert_eq!(changed.since(Some(3)), (2, None), "of another store");
        changed.add((1..MOST).map(|_| MachineId::random()).collect());
        assert_eq!(changed.since(Some(2)).1, None);
        let (last, machines) = changed.since(Some(3));
        assert_eq!((last, machines), (3, Some(BTreeSet::new())));
        changed.add([other].into());
        assert_eq!(changed.since(Some(3)), (4, Some([other].into())));
    }
}
