//! The rows of the fleet, kept from one request to the next. A row is made anew where its record, the reports of its machine or
//! the configurations are others, or where time has made it another: to read ten thousand reports costs more than all the rest.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::Result;

use super::install_runs;
use super::view::{self, MachineRow};
use crate::machines::configurations::Configurations;
use crate::machines::id::MachineId;
use crate::machines::machine::Machine;
use crate::machines::store::{RunRecord, StoredMachine};
use crate::moment::Moment;

/// Rows by what they were made from.
#[derive(Debug, Default)]
pub struct FleetRows {
    /// The revision of the configurations.
    revision: u64,
    /// When they were made or looked at last.
    now: Moment,
    /// With random keys: nobody can send a report that has the hash of another one.
    hasher: RandomState,
    rows: HashMap<MachineId, KeptRow>,
}

#[derive(Debug)]
struct KeptRow {
    /// Of the record and the run.
    hash: u64,
    row: Arc<MachineRow>,
}

impl FleetRows {
    /// The rows of these machines, in their order.
    pub fn update(
        &mut self,
        machines: Vec<StoredMachine>,
        runs: &HashMap<MachineId, RunRecord>,
        configurations: &Configurations,
        now: Moment,
    ) -> Result<Vec<Arc<MachineRow>>> {
        if configurations.revision() != self.revision || now < self.now {
            self.rows.clear();
        }
        (self.revision, self.now) = (configurations.revision(), now);
        let mut last = std::mem::take(&mut self.rows);
        self.rows.reserve(machines.len());
        let mut rows = Vec::with_capacity(machines.len());
        for stored in machines {
            let (id, run) = (stored.id, runs.get(&stored.id));
            let hash = self.hasher.hash_one((&stored, run));
            let is_now =
                |kept: &KeptRow| kept.hash == hash && kept.row.moments.until.is_none_or(|until| now < until);
            let row = match last.remove(&id).filter(is_now) {
                Some(kept) => kept.row,
                None => Arc::new(made(&stored.read()?, run, configurations, now)?),
            };
            rows.push(Arc::clone(&row));
            self.rows.insert(id, KeptRow { hash, row });
        }
        Ok(rows)
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
