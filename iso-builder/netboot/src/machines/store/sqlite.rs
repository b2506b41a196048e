//! The records in a file: SQLite with a write-ahead log (<https://sqlite.org/wal.html>).
//!
//! There are two connections: one that writes, and one that reads, for which the first does not wait. A commit with
//! `synchronous=FULL` reaches the disk before it returns, with `NORMAL` the kernel.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow};
use base::failure::{Class, Classify, Failure};
use base::files;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rusqlite::{Connection, TransactionBehavior, params};
use uuid::Uuid;

use super::unreadable::unreadable;
use super::{
    Durability, IdentityConflict, MOST_CONFLICTS, MOST_STRANGERS, MachineReader, MachineStore, MachineWriter,
    SnapshotBody, TransactionBody,
};
use crate::machines::id::MachineId;
use crate::machines::identity_keys::{self, IdentityKey};
use crate::machines::machine::Machine;
use crate::machines::token;

mod columns;

use columns::{attention, conflict, json, machine, seconds, word};

/// In the state directory.
pub const NAME: &str = "machines.db";
/// SQLite's `user_version`.
const FORMAT: i64 = 1;
/// SQLite's `application_id`, which tells this file from other databases: "NQRs".
const APPLICATION: i64 = 0x4e51_5273;
/// The most records that a lookup by identifiers returns: two are a conflict already.
const MOST_FOUND: u8 = 8;

const TABLES: &str = "
CREATE TABLE key (value BLOB NOT NULL);
CREATE TABLE machines (
    id BLOB PRIMARY KEY NOT NULL,
    assigned TEXT UNIQUE,
    identity TEXT NOT NULL,
    state TEXT NOT NULL,
    permission TEXT NOT NULL,
    configuration TEXT,
    first_seen INTEGER NOT NULL,
    last_seen INTEGER NOT NULL,
    since INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    taken TEXT,
    clients TEXT NOT NULL,
    stranger INTEGER NOT NULL,
    attention INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX strangers ON machines (last_seen) WHERE stranger;
CREATE INDEX attention ON machines (attention, last_seen);
CREATE TABLE marks (mark TEXT NOT NULL, machine BLOB NOT NULL, PRIMARY KEY (mark, machine)) WITHOUT ROWID;
CREATE INDEX marks_of ON marks (machine);
CREATE TABLE conflicts (
    id TEXT PRIMARY KEY NOT NULL,
    address TEXT NOT NULL,
    told TEXT NOT NULL,
    parties TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    times INTEGER NOT NULL
) WITHOUT ROWID;
";

/// The columns of a record, in the order in which [`machine`] reads them.
const COLUMNS: &str = "id, assigned, identity, state, permission, configuration, first_seen, last_seen, since, \
                       generation, taken, clients";

/// Locked by one server at a time.
pub struct SqliteStore {
    path: PathBuf,
    key: [u8; token::KEY],
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    _lock: Flock<File>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store in `directory`, or makes it, and imports the file of an earlier version of this program. A file
    /// that cannot be read is [`Class::Invalid`]: if it was taken for empty, every machine would install again.
    pub fn open(directory: &Path) -> Result<Self> {
        files::make_directory(directory, 0o700).class(Class::DiskIo, || "preparing --state".into())?;
        let lock = lock(&directory.join("lock"))?;
        let path = directory.join(NAME);
        let open = || -> Result<_> {
            // SQLite gives the journal the mode of the file.
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            let mut writer = connect(&path)?;
            let key = prepare(&mut writer)?;
            let reader = connect(&path)?;
            reader.pragma_update(None, "query_only", true)?;
            Ok((key, writer, reader))
        };
        let (key, writer, reader) = open().map_err(|error| unreadable(&path, error))?;
        let store = Self { path, key, writer: Mutex::new(writer), reader: Mutex::new(reader), _lock: lock };
        super::import::run(directory, &store)?;
        Ok(store)
    }
}

impl MachineStore for SqliteStore {
    fn key(&self) -> [u8; token::KEY] {
        self.key
    }

    fn transact(&self, durability: Durability, change: TransactionBody<'_>) -> Result<()> {
        let what = || "storing the state of the machines".to_owned();
        let mut connection = locked(&self.writer);
        let synchronous = match durability {
            Durability::Full => "FULL",
            Durability::Process => "NORMAL",
        };
        connection.pragma_update(None, "synchronous", synchronous).class(Class::DiskIo, what)?;
        // It is rolled back if it is dropped before it is committed.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = transaction.class(Class::DiskIo, what)?;
        change(&mut Rows(&transaction))?;
        transaction.commit().class(Class::DiskIo, what)
    }

    fn look(&self, look: SnapshotBody<'_>) -> Result<()> {
        let what = || "reading the state of the machines".to_owned();
        let mut connection = locked(&self.reader);
        let transaction = connection.transaction().class(Class::DiskIo, what)?;
        look(&Rows(&transaction))
    }
}

/// Ignores poisoning: a change that panicked was rolled back.
fn locked(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Makes the tables where there are none. Returns the key.
fn prepare(connection: &mut Connection) -> Result<[u8; token::KEY]> {
    let number = |connection: &Connection, name: &str| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, name, |row| row.get(0))
    };
    let found = (number(connection, "application_id")?, number(connection, "user_version")?);
    if found == (0, 0) && is_empty(connection)? {
        connection.pragma_update(None, "synchronous", "FULL")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
        transaction.execute("INSERT INTO key (value) VALUES (?1)", [token::random::<{ token::KEY }>()?])?;
        transaction.commit()?;
    } else if found != (APPLICATION, FORMAT) {
        return Err(anyhow!("it has format {}, and this program reads format {FORMAT}", found.1));
    }
    connection.query_row("SELECT value FROM key", [], |row| row.get(0)).context("reading the key for tokens")
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

fn lock(path: &Path) -> Result<Flock<File>> {
    let what = || format!("locking {}", path.display());
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.class(Class::DiskIo, what)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => {
            let directory = path.parent().unwrap_or(path).display();
            Failure::new(Class::Invalid, format!("another server uses the state in {directory}"))
                .hint("Stop that server, or give this one another directory with --state.")
                .into()
        }
        errno => Failure::new(Class::DiskIo, what()).because(errno).into(),
    })
}

/// The rows as one transaction sees them.
struct Rows<'a>(&'a Connection);

impl MachineReader for Rows<'_> {
    fn get(&self, id: MachineId) -> Result<Option<Machine>> {
        self.one("id = ?1", id.as_uuid().as_bytes())
    }

    fn assigned(&self, configuration: &str) -> Result<Option<Machine>> {
        self.one("assigned = ?1", configuration)
    }

    fn with_any(&self, marks: &BTreeSet<IdentityKey>) -> Result<Vec<Machine>> {
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

    fn list(&self, limit: usize) -> Result<Vec<Machine>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sql = format!("SELECT {COLUMNS} FROM machines ORDER BY attention, last_seen DESC LIMIT ?1");
        let mut statement = self.0.prepare_cached(&sql)?;
        statement.query_and_then([limit], machine)?.collect()
    }

    fn count(&self) -> Result<usize> {
        let count: i64 = self.0.query_row("SELECT count(*) FROM machines", [], |row| row.get(0))?;
        Ok(usize::try_from(count)?)
    }

    fn conflicts(&self) -> Result<Vec<IdentityConflict>> {
        let sql =
            "SELECT id, address, told, parties, first, last, times FROM conflicts ORDER BY last DESC, id";
        let mut statement = self.0.prepare_cached(sql)?;
        statement.query_and_then([], conflict)?.collect()
    }
}

impl MachineWriter for Rows<'_> {
    fn put(&mut self, machine: &Machine) -> Result<()> {
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

    fn remove(&mut self, id: MachineId) -> Result<()> {
        let id = id.as_uuid().as_bytes();
        self.0.prepare_cached("DELETE FROM marks WHERE machine = ?1")?.execute([id])?;
        self.0.prepare_cached("DELETE FROM machines WHERE id = ?1")?.execute([id])?;
        Ok(())
    }

    fn make_room_for_a_stranger(&mut self) -> Result<()> {
        // The subquery reads only the index of strangers, whose size is limited.
        let sql = "SELECT id FROM machines WHERE stranger ORDER BY last_seen LIMIT \
                   max(0, (SELECT count(*) FROM machines WHERE stranger) - ?1)";
        let mut statement = self.0.prepare_cached(sql)?;
        let ids = statement.query_map([MOST_STRANGERS - 1], |row| row.get::<_, [u8; 16]>(0))?;
        let ids: Vec<[u8; 16]> = ids.collect::<rusqlite::Result<_>>()?;
        ids.into_iter().try_for_each(|id| self.remove(MachineId::of(Uuid::from_bytes(id))))
    }

    fn add_conflict(&mut self, conflict: &IdentityConflict) -> Result<()> {
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

    fn remove_conflict(&mut self, id: &str) -> Result<bool> {
        Ok(self.0.prepare_cached("DELETE FROM conflicts WHERE id = ?1")?.execute([id])? > 0)
    }
}

impl Rows<'_> {
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

#[cfg(test)]
mod tests;
