//! The records in the tables of the database, read and written within one transaction.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, Result};

use super::columns::{attention, bytes, conflict, id, json, machine, run, seconds, word};
use super::conflict::IdentityConflict;
use super::run::RunRecord;
use super::sql::{SqlRow, SqlTransaction, SqlValue};
use super::stored::StoredMachine;
use crate::machines::id::MachineId;
use crate::machines::identity_keys::{self, IdentityKey};
use crate::machines::machine::Machine;
use crate::moment::Moment;

/// The most records of machines that only sent a request and that no configuration names. Anybody on the network can
/// invent more.
pub(super) const MOST_STRANGERS: u32 = 1000;
pub(super) const MOST_CONFLICTS: u32 = 100;
/// The most records that a lookup by identifiers returns: two are a conflict already.
const MOST_FOUND: u32 = 8;
/// How many records one query reads.
const READ_AT_ONCE: usize = 64;
/// All logs together, in bytes; beyond it the oldest are removed.
pub(super) const MOST_LOGS: i64 = 32 << 20;

/// The columns of a record, in the order in which [`machine`] reads them.
const COLUMNS: &str = "id, assigned, identity, state, permission, configuration, first_seen, last_seen, since, \
                       generation, taken, clients";
/// The records that an operator has to look at come first.
const ORDER: &str = "attention, last_seen DESC";
/// The columns of a conflict, in the order in which [`conflict`] reads them.
const CONFLICTS: &str = "SELECT id, address, told, parties, first, last, times FROM conflicts";
/// The columns of a run, in the order in which [`run`] reads them.
const RUNS: &str = "SELECT runs.machine, runs.run, runs.heard, logs.size FROM runs \
                    LEFT JOIN logs ON logs.machine = runs.machine";

/// The records as one transaction sees them.
#[derive(Debug)]
pub struct MachineRecords<'a> {
    transaction: RefCell<&'a mut dyn SqlTransaction>,
    /// The machines whose records, runs or logs were changed.
    pub(super) changed: BTreeSet<MachineId>,
}

impl<'a> MachineRecords<'a> {
    pub(super) fn new(transaction: &'a mut dyn SqlTransaction) -> Self {
        Self { transaction: RefCell::new(transaction), changed: BTreeSet::new() }
    }

    pub(super) fn query(&self, sql: &str, values: &[SqlValue]) -> Result<Vec<SqlRow>> {
        self.transaction.borrow_mut().query(sql, values)
    }

    pub(super) fn execute(&self, sql: &str, values: &[SqlValue]) -> Result<u64> {
        self.transaction.borrow_mut().execute(sql, values)
    }

    fn machines(&self, condition: &str, values: &[SqlValue]) -> Result<Vec<Machine>> {
        let rows = self.query(&format!("SELECT {COLUMNS} FROM machines {condition}"), values)?;
        rows.into_iter().map(machine).collect()
    }

    pub fn get(&self, id: MachineId) -> Result<Option<Machine>> {
        Ok(self.machines("WHERE id = $1", &[bytes(id)])?.pop())
    }

    /// The record to which a configuration is assigned.
    pub fn assigned(&self, configuration: &str) -> Result<Option<Machine>> {
        Ok(self.machines("WHERE assigned = $1", &[configuration.into()])?.pop())
    }

    /// The first record whose machine was offered this configuration last.
    pub fn offered(&self, configuration: &str) -> Result<Option<Machine>> {
        let condition = format!("WHERE configuration = $1 ORDER BY {ORDER} LIMIT 1");
        Ok(self.machines(&condition, &[configuration.into()])?.pop())
    }

    /// The records that have one of these identifiers; only the first few.
    pub fn with_any(&self, marks: &BTreeSet<IdentityKey>) -> Result<Vec<Machine>> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let named: Vec<String> = (1..=marks.len()).map(|number| format!("${number}")).collect();
        let condition = format!(
            "WHERE id IN (SELECT DISTINCT machine FROM marks WHERE mark IN ({}) LIMIT ${}) ORDER BY id",
            named.join(", "),
            marks.len() + 1,
        );
        let values = marks.iter().map(|mark| mark.as_str().into());
        self.machines(&condition, &values.chain([MOST_FOUND.into()]).collect::<Vec<_>>())
    }

    /// The first `limit` records, beginning with those that an operator has to look at.
    pub fn list(&self, limit: usize) -> Result<Vec<Machine>> {
        self.machines(&format!("ORDER BY {ORDER} LIMIT $1"), &[number(limit)])
    }

    /// All records, beginning with those that an operator has to look at.
    pub fn stored(&self) -> Result<Vec<StoredMachine>> {
        let rows = self.query(&format!("SELECT {COLUMNS} FROM machines ORDER BY {ORDER}"), &[])?;
        rows.into_iter().map(StoredMachine::new).collect()
    }

    /// These records with their runs; those that are there.
    pub fn stored_among(
        &self,
        ids: &BTreeSet<MachineId>,
    ) -> Result<(Vec<StoredMachine>, HashMap<MachineId, RunRecord>)> {
        let (mut machines, mut runs) = (Vec::new(), HashMap::new());
        let named = (1..=READ_AT_ONCE).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ");
        let all: Vec<_> = ids.iter().copied().map(bytes).collect();
        for some in all.chunks(READ_AT_ONCE) {
            // One text for any number of them, which databases parse once.
            let repeated = some.iter().cycle().take(READ_AT_ONCE).cloned().collect::<Vec<_>>();
            let sql = format!("SELECT {COLUMNS} FROM machines WHERE id IN ({named})");
            for row in self.query(&sql, &repeated)? {
                machines.push(StoredMachine::new(row)?);
            }
            for row in self.query(&format!("{RUNS} WHERE runs.machine IN ({named})"), &repeated)? {
                runs.extend([run(row)?]);
            }
        }
        Ok((machines, runs))
    }

    pub fn count(&self) -> Result<usize> {
        let mut rows = self.query("SELECT count(*) FROM machines", &[])?;
        let count: i64 = rows.pop().map_or(Ok(0), |mut row| row.take())?;
        Ok(usize::try_from(count)?)
    }

    /// The latest first.
    pub fn conflicts(&self) -> Result<Vec<IdentityConflict>> {
        self.query(&format!("{CONFLICTS} ORDER BY last DESC, id"), &[])?.into_iter().map(conflict).collect()
    }

    /// Adds a record, or replaces the one with its id.
    pub fn put(&mut self, machine: &Machine) -> Result<()> {
        self.changed.insert(machine.id);
        let sql = format!(
            "INSERT INTO machines ({COLUMNS}, stranger, attention) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) \
             ON CONFLICT (id) DO UPDATE SET assigned = excluded.assigned, identity = excluded.identity, \
             state = excluded.state, permission = excluded.permission, configuration = excluded.configuration, \
             first_seen = excluded.first_seen, last_seen = excluded.last_seen, since = excluded.since, \
             generation = excluded.generation, taken = excluded.taken, clients = excluded.clients, \
             stranger = excluded.stranger, attention = excluded.attention"
        );
        let Machine { assigned, configuration, first_seen, last_seen, since, generation, .. } = machine;
        let values = [
            bytes(machine.id),
            assigned.clone().into(),
            json(&machine.identity)?.into(),
            word(machine.state)?.into(),
            word(machine.permission)?.into(),
            configuration.clone().into(),
            seconds(*first_seen),
            seconds(*last_seen),
            seconds(*since),
            (*generation).into(),
            machine.taken.as_ref().map(json).transpose()?.into(),
            json(&machine.clients)?.into(),
            machine.is_stranger().into(),
            attention(machine).into(),
        ];
        // A second record for one configuration is an error: its column is unique.
        self.execute(&sql, &values).with_context(|| format!("storing the record of {}", machine.name()))?;
        self.index(machine)
    }

    /// Removes a record with everything that belongs to it.
    pub fn remove(&mut self, id: MachineId) -> Result<()> {
        self.changed.insert(id);
        for table in ["marks", "runs", "logs"] {
            self.execute(&format!("DELETE FROM {table} WHERE machine = $1"), &[bytes(id)])?;
        }
        self.execute("DELETE FROM machines WHERE id = $1", &[bytes(id)])?;
        Ok(())
    }

    /// Removes the strangers that were seen the longest ago, so that fewer than [`MOST_STRANGERS`] remain.
    pub fn make_room_for_a_stranger(&mut self) -> Result<()> {
        // The newest are skipped. Both queries read only the index of strangers, whose size is limited.
        let sql = "SELECT id FROM machines WHERE stranger ORDER BY last_seen DESC LIMIT $1 OFFSET $2";
        let rows = self.query(sql, &[i64::MAX.into(), (MOST_STRANGERS - 1).into()])?;
        let ids: Vec<MachineId> = rows.into_iter().map(|mut row| id(&mut row)).collect::<Result<_>>()?;
        ids.into_iter().try_for_each(|id| self.remove(id))
    }

    /// Adds a conflict or counts it again; beyond [`MOST_CONFLICTS`] the oldest is removed.
    pub fn add_conflict(&mut self, conflict: &IdentityConflict) -> Result<()> {
        let IdentityConflict { id, address, told, between, first, last, times } = conflict;
        let sql = "INSERT INTO conflicts (id, address, told, parties, first, last, times) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7) \
                   ON CONFLICT (id) DO UPDATE SET told = excluded.told, last = excluded.last, \
                   times = conflicts.times + 1";
        let times = i64::try_from(*times).unwrap_or(i64::MAX);
        let values = [
            id.clone().into(),
            address.to_string().into(),
            told.clone().into(),
            json(between)?.into(),
            seconds(*first),
            seconds(*last),
            times.into(),
        ];
        self.execute(sql, &values)?;
        let sql =
            "DELETE FROM conflicts WHERE id NOT IN (SELECT id FROM conflicts ORDER BY last DESC LIMIT $1)";
        self.execute(sql, &[MOST_CONFLICTS.into()])?;
        Ok(())
    }

    /// Returns the conflict, if it was there.
    pub fn remove_conflict(&mut self, id: &str) -> Result<Option<IdentityConflict>> {
        let rows = self.query(&format!("{CONFLICTS} WHERE id = $1"), &[id.into()])?;
        self.execute("DELETE FROM conflicts WHERE id = $1", &[id.into()])?;
        Ok(rows.into_iter().map(conflict).collect::<Result<Vec<_>>>()?.pop())
    }

    /// The reports of a machine's latest run.
    pub fn run(&self, machine: MachineId) -> Result<Option<RunRecord>> {
        let rows = self.query(&format!("{RUNS} WHERE runs.machine = $1"), &[bytes(machine)])?;
        Ok(rows.into_iter().map(run).collect::<Result<Vec<_>>>()?.pop().map(|(_, run)| run))
    }

    /// The runs of all machines that have a record.
    pub fn runs(&self) -> Result<HashMap<MachineId, RunRecord>> {
        let sql = format!("{RUNS} WHERE runs.machine IN (SELECT id FROM machines)");
        self.query(&sql, &[])?.into_iter().map(run).collect()
    }

    /// Adds a run, or replaces that of the same machine. Its log is stored by [`MachineRecords::put_log`].
    pub fn put_run(&mut self, machine: MachineId, run: &RunRecord) -> Result<()> {
        self.changed.insert(machine);
        let sql = "INSERT INTO runs (machine, run, heard) VALUES ($1, $2, $3) \
                   ON CONFLICT (machine) DO UPDATE SET run = excluded.run, heard = excluded.heard";
        self.execute(sql, &[bytes(machine), run.run.clone().into(), run.heard.map(seconds).into()])?;
        Ok(())
    }

    /// The log of a machine's latest run.
    pub fn log(&self, machine: MachineId) -> Result<Option<String>> {
        let mut rows = self.query("SELECT log FROM logs WHERE machine = $1", &[bytes(machine)])?;
        rows.pop().map(|mut row| row.take()).transpose()
    }

    /// Replaces the log of a machine's run; beyond [`MOST_LOGS`] the oldest logs of other machines are removed.
    pub fn put_log(&mut self, machine: MachineId, log: &str, now: Moment) -> Result<()> {
        self.changed.insert(machine);
        let sql = "INSERT INTO logs (machine, log, size, received) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (machine) DO UPDATE SET log = excluded.log, size = excluded.size, \
                   received = excluded.received";
        let size = i64::try_from(log.len())?;
        self.execute(sql, &[bytes(machine), log.into(), size.into(), seconds(now)])?;
        let sql = "SELECT machine, size FROM logs WHERE machine <> $1 ORDER BY received DESC";
        let mut total = size;
        for mut row in self.query(sql, &[bytes(machine)])? {
            let other = id(&mut row)?;
            total += row.take::<i64>()?;
            if total > MOST_LOGS {
                self.remove_log(other)?;
            }
        }
        Ok(())
    }

    pub fn remove_log(&mut self, machine: MachineId) -> Result<()> {
        self.changed.insert(machine);
        self.execute("DELETE FROM logs WHERE machine = $1", &[bytes(machine)])?;
        // Who asks the database what was changed finds rows, and none that was removed.
        self.execute("UPDATE runs SET heard = heard WHERE machine = $1", &[bytes(machine)])?;
        Ok(())
    }

    /// Updates the identifiers of a record.
    fn index(&mut self, machine: &Machine) -> Result<()> {
        let wanted = identity_keys::of(&machine.identity);
        let rows = self.query("SELECT mark FROM marks WHERE machine = $1", &[bytes(machine.id)])?;
        let found: BTreeSet<String> = rows.into_iter().map(|mut row| row.take()).collect::<Result<_>>()?;
        for mark in wanted.iter().filter(|mark| !found.contains(mark.as_str())) {
            let values = [mark.as_str().into(), bytes(machine.id)];
            self.execute("INSERT INTO marks (mark, machine) VALUES ($1, $2)", &values)?;
        }
        let wanted: BTreeSet<&str> = wanted.iter().map(IdentityKey::as_str).collect();
        for mark in found.into_iter().filter(|mark| !wanted.contains(mark.as_str())) {
            let values = [mark.into(), bytes(machine.id)];
            self.execute("DELETE FROM marks WHERE mark = $1 AND machine = $2", &values)?;
        }
        Ok(())
    }
}

/// A limit of rows.
pub(super) fn number(limit: usize) -> SqlValue {
    i64::try_from(limit).unwrap_or(i64::MAX).into()
}
