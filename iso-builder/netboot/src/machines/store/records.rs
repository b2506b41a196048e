//! The records in the tables of the database, read and written within one transaction.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::columns::{attention, conflict, json, machine, seconds, word};
use super::conflict::IdentityConflict;
use crate::machines::id::MachineId;
use crate::machines::identity_keys::{self, IdentityKey};
use crate::machines::machine::Machine;

/// The most records of machines that only sent a request and that no configuration names. Anybody on the network can
/// invent more.
pub(super) const MOST_STRANGERS: u32 = 1000;
pub(super) const MOST_CONFLICTS: u32 = 100;
/// The most records that a lookup by identifiers returns: two are a conflict already.
const MOST_FOUND: u8 = 8;

/// The columns of a record, in the order in which [`machine`] reads them.
const COLUMNS: &str = "id, assigned, identity, state, permission, configuration, first_seen, last_seen, since, \
                       generation, taken, clients";

/// The records as one transaction sees them.
#[derive(Debug)]
pub struct MachineRecords<'a>(pub(super) &'a Connection);

impl MachineRecords<'_> {
    pub fn get(&self, id: MachineId) -> Result<Option<Machine>> {
        self.one("id = ?1", id.as_uuid().as_bytes())
    }

    /// The record to which a configuration is assigned.
    pub fn assigned(&self, configuration: &str) -> Result<Option<Machine>> {
        self.one("assigned = ?1", configuration)
    }

    /// The records that have one of these identifiers; only the first few.
    pub fn with_any(&self, marks: &BTreeSet<IdentityKey>) -> Result<Vec<Machine>> {
        let mut found = BTreeSet::new();
        let mut lookup = self.0.prepare_cached("SELECT machine FROM marks WHERE mark = ?1 LIMIT ?2")?;
        for mark in marks {
            let ids =
                lookup.query_map(params![mark.as_str(), MOST_FOUND], |row| row.get::<_, [u8; 16]>(0))?;
            for id in ids {
                found.insert(MachineId::of(Uuid::from_bytes(id?)));
            }
            if found.len() >= usize::from(MOST_FOUND) {
                break;
            }
        }
        found.into_iter().filter_map(|id| self.get(id).transpose()).collect()
    }

    /// The first `limit` records, beginning with those that an operator has to look at.
    pub fn list(&self, limit: usize) -> Result<Vec<Machine>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = format!("SELECT {COLUMNS} FROM machines ORDER BY attention, last_seen DESC LIMIT ?1");
        let mut statement = self.0.prepare_cached(&sql)?;
        statement.query_and_then([limit], machine)?.collect()
    }

    pub fn count(&self) -> Result<usize> {
        let count: i64 = self.0.query_row("SELECT count(*) FROM machines", [], |row| row.get(0))?;
        Ok(usize::try_from(count)?)
    }

    /// The latest first.
    pub fn conflicts(&self) -> Result<Vec<IdentityConflict>> {
        let sql =
            "SELECT id, address, told, parties, first, last, times FROM conflicts ORDER BY last DESC, id";
        let mut statement = self.0.prepare_cached(sql)?;
        statement.query_and_then([], conflict)?.collect()
    }

    /// Adds a record, or replaces the one with its id.
    pub fn put(&mut self, machine: &Machine) -> Result<()> {
        let id = machine.id.as_uuid().as_bytes();
        let sql = format!(
            "INSERT OR REPLACE INTO machines ({COLUMNS}, stranger, attention) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
        );
        let Machine { assigned, configuration, first_seen, last_seen, since, generation, .. } = machine;
        // Else REPLACE would remove the other record of the same configuration.
        let other = assigned.as_deref().map(|name| self.assigned(name)).transpose()?.flatten();
        if other.is_some_and(|other| other.id != machine.id) {
            return Err(anyhow!("there are two records for {}", assigned.as_deref().unwrap_or_default()));
        }
        self.0.prepare_cached(&sql)?.execute(params![
            id,
            assigned,
            json(&machine.identity)?,
            word(machine.state)?,
            word(machine.permission)?,
            configuration,
            seconds(*first_seen),
            seconds(*last_seen),
            seconds(*since),
            generation,
            machine.taken.as_ref().map(json).transpose()?,
            json(&machine.clients)?,
            machine.is_stranger(),
            attention(machine),
        ])?;
        self.index(machine)
    }

    pub fn remove(&mut self, id: MachineId) -> Result<()> {
        let id = id.as_uuid().as_bytes();
        self.0.prepare_cached("DELETE FROM marks WHERE machine = ?1")?.execute([id])?;
        self.0.prepare_cached("DELETE FROM machines WHERE id = ?1")?.execute([id])?;
        Ok(())
    }

    /// Removes the strangers that were seen the longest ago, so that fewer than [`MOST_STRANGERS`] remain.
    pub fn make_room_for_a_stranger(&mut self) -> Result<()> {
        // The subquery reads only the index of strangers, whose size is limited.
        let sql = "SELECT id FROM machines WHERE stranger ORDER BY last_seen LIMIT \
                   max(0, (SELECT count(*) FROM machines WHERE stranger) - ?1)";
        let mut statement = self.0.prepare_cached(sql)?;
        let ids = statement.query_map([MOST_STRANGERS - 1], |row| row.get::<_, [u8; 16]>(0))?;
        let ids: Vec<[u8; 16]> = ids.collect::<rusqlite::Result<_>>()?;
        ids.into_iter().try_for_each(|id| self.remove(MachineId::of(Uuid::from_bytes(id))))
    }

    /// Adds a conflict or counts it again; beyond [`MOST_CONFLICTS`] the oldest is removed.
    pub fn add_conflict(&mut self, conflict: &IdentityConflict) -> Result<()> {
        let IdentityConflict { id, address, told, between, first, last, times } = conflict;
        let sql = "INSERT INTO conflicts (id, address, told, parties, first, last, times) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
                   ON CONFLICT (id) DO UPDATE SET told = excluded.told, last = excluded.last, times = times + 1";
        let (first, last) = (seconds(*first), seconds(*last));
        let times = i64::try_from(*times).unwrap_or(i64::MAX);
        let values = params![id, address.to_string(), told, json(between)?, first, last, times];
        self.0.prepare_cached(sql)?.execute(values)?;
        let sql =
            "DELETE FROM conflicts WHERE id NOT IN (SELECT id FROM conflicts ORDER BY last DESC LIMIT ?1)";
        self.0.prepare_cached(sql)?.execute([MOST_CONFLICTS])?;
        Ok(())
    }

    /// Returns whether it was there.
    pub fn remove_conflict(&mut self, id: &str) -> Result<bool> {
        Ok(self.0.prepare_cached("DELETE FROM conflicts WHERE id = ?1")?.execute([id])? > 0)
    }

    fn one(&self, condition: &str, value: impl rusqlite::ToSql) -> Result<Option<Machine>> {
        let sql = format!("SELECT {COLUMNS} FROM machines WHERE {condition}");
        let mut statement = self.0.prepare_cached(&sql)?;
        let mut rows = statement.query([value])?;
        rows.next()?.map(machine).transpose()
    }

    /// Updates the identifiers of a record.
    fn index(&mut self, machine: &Machine) -> Result<()> {
        let id = machine.id.as_uuid().as_bytes();
        let wanted = identity_keys::of(&machine.identity);
        let mut statement = self.0.prepare_cached("SELECT mark FROM marks WHERE machine = ?1")?;
        let found = statement.query_map([id], |row| row.get::<_, String>(0))?;
        let found: BTreeSet<String> = found.collect::<rusqlite::Result<_>>()?;
        let mut add = self.0.prepare_cached("INSERT INTO marks (mark, machine) VALUES (?1, ?2)")?;
        for mark in wanted.iter().filter(|mark| !found.contains(mark.as_str())) {
            add.execute(params![mark.as_str(), id])?;
        }
        let mut remove = self.0.prepare_cached("DELETE FROM marks WHERE mark = ?1 AND machine = ?2")?;
        let wanted: BTreeSet<&str> = wanted.iter().map(IdentityKey::as_str).collect();
        for mark in found.iter().filter(|mark| !wanted.contains(mark.as_str())) {
            remove.execute(params![mark, id])?;
        }
        Ok(())
    }
}
