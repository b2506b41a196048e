//! The rows of the fleet, kept from one request to the next. A row is made anew where its record, the reports of its machine or
//! the configurations are others, or where time has made it another: to read ten thousand reports costs more than all the rest.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::Result;

use super::install_runs;
use super::view::{self, MachineRow};
use crate::machines::configurations::Configurations;
use crate::machines::id::MachineId;
use crate::machines::machine::Machine;
use crate::machines::registry::{MachineRegistry, StoredFleet};
use crate::machines::store::{ChangeMark, IdentityConflict, RunRecord, StoredMachine};
use crate::moment::Moment;

/// Rows by what they were made from.
#[derive(Debug, Default)]
pub struct FleetRows {
    /// The revision of the configurations.
    revision: u64,
    /// When they were made or looked at last.
    now: Moment,
    /// How much of the store they have; none if that is not known.
    mark: Option<ChangeMark>,
    /// With random keys: nobody can send a report that has the hash of another one.
    hasher: RandomState,
    rows: BTreeMap<MachineId, KeptRow>,
}

#[derive(Debug)]
struct KeptRow {
    /// Of the record and the run.
    hash: u64,
    /// The configuration of the record.
    assigned: Option<String>,
    row: Arc<MachineRow>,
}

/// The fleet at one moment.
#[derive(Debug)]
pub struct FleetSnapshot {
    /// By their ids.
    pub rows: Vec<Arc<MachineRow>>,
    pub conflicts: Vec<IdentityConflict>,
    /// The hostnames of the configurations whose machines have never asked to boot.
    pub not_heard_of: Vec<String>,
}

impl KeptRow {
    fn is_due(&self, now: Moment) -> bool {
        self.row.moments.until.is_some_and(|until| now >= until)
    }
}

impl FleetRows {
    /// Reads what has changed.
    pub fn snapshot(
        &mut self,
        store: &MachineRegistry,
        configurations: &Configurations,
        now: Moment,
    ) -> Result<FleetSnapshot> {
        if configurations.revision() != self.revision || now < self.now {
            self.rows.clear();
            self.mark = None;
        }
        (self.revision, self.now) = (configurations.revision(), now);
        let due: BTreeSet<_> =
            self.rows.iter().filter(|(_, kept)| kept.is_due(now)).map(|(id, _)| *id).collect();
        // Until everything is applied, nothing is known.
        let mut stored = store.fleet(self.mark.take().as_ref(), &due)?;
        self.apply(&mut stored, configurations)?;
        // A database that others change does not tell which records were removed.
        if self.rows.len() != stored.count {
            stored = store.fleet(None, &BTreeSet::new())?;
            self.apply(&mut stored, configurations)?;
        }
        self.mark = Some(stored.mark);
        let rows = self.rows.values().map(|kept| Arc::clone(&kept.row)).collect();
        let not_heard_of = self.not_heard_of(configurations);
        Ok(FleetSnapshot { rows, conflicts: stored.conflicts, not_heard_of })
    }

    /// Takes over what was read.
    fn apply(&mut self, stored: &mut StoredFleet, configurations: &Configurations) -> Result<()> {
        let mut last: BTreeMap<_, _> = match &stored.asked {
            None => std::mem::take(&mut self.rows),
            Some(ids) => ids.iter().filter_map(|id| self.rows.remove_entry(id)).collect(),
        };
        for machine in stored.machines.drain(..) {
            let (id, run) = (machine.id, stored.runs.get(&machine.id));
            let kept = self.kept(last.remove(&id), machine, run, configurations)?;
            self.rows.insert(id, kept);
        }
        Ok(())
    }

    fn not_heard_of(&self, configurations: &Configurations) -> Vec<String> {
        let known: HashSet<&str> = self.rows.values().filter_map(|kept| kept.assigned.as_deref()).collect();
        let silent = configurations.assignable().filter(|name| !known.contains(name));
        silent.map(|name| configurations.hostname(name).unwrap_or(name).to_owned()).collect()
    }

    /// The last row, if it is the same as one that was made now.
    fn kept(
        &self,
        last: Option<KeptRow>,
        machine: StoredMachine,
        run: Option<&RunRecord>,
        configurations: &Configurations,
    ) -> Result<KeptRow> {
        let hash = self.hasher.hash_one((&machine, run));
        match last.filter(|last| last.hash == hash && !last.is_due(self.now)) {
            Some(last) => Ok(last),
            None => {
                let machine = machine.read()?;
                let row = Arc::new(made(&machine, run, configurations, self.now)?);
                Ok(KeptRow { hash, assigned: machine.assigned, row })
            }
        }
    }
}

fn made(
    machine: &Machine,
    run: Option<&RunRecord>,
    configurations: &Configurations,
    now: Moment,
) -> Result<MachineRow> {
    let run = run.map(install_runs::read).transpose()?;
    let row = view::row(machine, run.as_ref(), configurations.fit(machine), now);
    Ok(row.described_by(configurations, machine, run.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::machine::OperatorAction;
    use crate::test_support::{StorePlace, configurations, for_every_store, operator, told};

    for_every_store!(what_any_server_changes_or_forgets_is_shown);

    fn what_any_server_changes_or_forgets_is_shown(place: &StorePlace) {
        let servers: Vec<_> =
            (0..if place.url.is_some() { 2 } else { 1 }).map(|_| place.registry()).collect();
        let (here, there) = (&servers[0], servers.last().unwrap());
        let all = configurations(&["serial-A.yaml", "serial-B.yaml"]);
        let mut rows = FleetRows::default();
        let mut shown = |now| {
            let snapshot = rows.snapshot(here, &all, Moment(now)).unwrap();
            (snapshot.rows.len(), snapshot.not_heard_of.len())
        };
        let boot = |serial: &str| {
            let identity = told(&format!("serial={serial}"));
            there.boot(&identity, [192, 0, 2, 1].into(), &all, Moment(7)).unwrap().machine.unwrap()
        };
        assert_eq!(shown(7), (0, 2));
        let one = boot("A");
        assert_eq!(shown(8), (1, 1));
        boot("B");
        boot("C");
        assert_eq!(shown(9), (3, 0));
        there.act(&[one.into()], OperatorAction::Forget, &operator(), &all, Moment(10)).unwrap();
        assert_eq!(shown(10), (2, 1));
        // One comes as another goes.
        let other = boot("A");
        there.act(&[other.into()], OperatorAction::Forget, &operator(), &all, Moment(11)).unwrap();
        boot("D");
        assert_eq!(shown(11), (3, 1));
    }
}
