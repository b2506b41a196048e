//! The rows of the fleet, kept from one request to the next. A row is made anew where its record, the reports of its machine or
//! the configurations are others, or where time has made it another: to read ten thousand reports costs more than all the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::Result;

use super::install_runs;
use super::view::{self, MachineRow};
use crate::machines::configurations::Configurations;
use crate::machines::id::MachineId;
use crate::machines::machine::Machine;
use crate::machines::registry::{MachineRegistry, StoredFleet, StoredMachines};
use crate::machines::store::{RunRecord, StoredMachine};
use crate::moment::Moment;

/// Rows by what they were made from.
#[derive(Debug, Default)]
pub struct FleetRows {
    /// The revision of the configurations.
    revision: u64,
    /// When they were made or looked at last.
    now: Moment,
    /// The last change of the store that they have.
    version: Option<u64>,
    /// With random keys: nobody can send a report that has the hash of another one.
    hasher: RandomState,
    rows: BTreeMap<MachineId, KeptRow>,
}

#[derive(Debug)]
struct KeptRow {
    /// Of the record and the run.
    hash: u64,
    row: Arc<MachineRow>,
}

/// The fleet at one moment.
#[derive(Debug)]
pub struct FleetSnapshot {
    /// By their ids.
    pub rows: Vec<Arc<MachineRow>>,
    /// Its machines are among `rows` already.
    pub stored: StoredFleet,
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
            self.version = None;
        }
        (self.revision, self.now) = (configurations.revision(), now);
        let due: BTreeSet<_> =
            self.rows.iter().filter(|(_, kept)| kept.is_due(now)).map(|(id, _)| *id).collect();
        let mut stored = store.fleet(configurations, self.version, due)?;
        // Until everything is applied, nothing is known.
        self.version = None;
        match std::mem::replace(&mut stored.machines, StoredMachines::Some(Vec::new())) {
            StoredMachines::All(machines, runs) => {
                let mut last = std::mem::take(&mut self.rows);
                for machine in machines {
                    let (id, run) = (machine.id, runs.get(&machine.id));
                    let kept = self.kept(last.remove(&id), machine, run, configurations)?;
                    self.rows.insert(id, kept);
                }
            }
            StoredMachines::Some(machines) => {
                for (id, machine, run) in machines {
                    let last = self.rows.remove(&id);
                    if let Some(machine) = machine {
                        let kept = self.kept(last, machine, run.as_ref(), configurations)?;
                        self.rows.insert(id, kept);
                    }
                }
            }
        }
        self.version = stored.version;
        let rows = self.rows.values().map(|kept| Arc::clone(&kept.row)).collect();
        Ok(FleetSnapshot { rows, stored })
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
                Ok(KeptRow { hash, row: Arc::new(made(&machine.read()?, run, configurations, self.now)?) })
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
