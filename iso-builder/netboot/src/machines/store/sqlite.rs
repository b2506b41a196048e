//! The records in a file: SQLite with a write-ahead log (<https://sqlite.org/wal.html>).
//!
//! There are two connections: one that writes, and one that reads, for which the first does not wait. A commit with
//! `synchronous=FULL` reaches the disk before it returns, with `NORMAL` the kernel.

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
use rusqlite::{Connection, TransactionBehavior};

use super::records::MachineRecords;
use super::unreadable::unreadable;
use super::{Durability, MachineStore, SnapshotBody, TransactionBody};
use crate::machines::token;

/// In the state directory.
pub const NAME: &str = "machines.db";
/// SQLite's `user_version`.
const FORMAT: i64 = 1;
/// SQLite's `application_id`, which tells this file from other databases: "NQRs".
const APPLICATION: i64 = 0x4e51_5273;

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
        change(&mut MachineRecords(&transaction))?;
        transaction.commit().class(Class::DiskIo, what)
    }

    fn look(&self, look: SnapshotBody<'_>) -> Result<()> {
        let what = || "reading the state of the machines".to_owned();
        let mut connection = locked(&self.reader);
        let transaction = connection.transaction().class(Class::DiskIo, what)?;
        look(&MachineRecords(&transaction))
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

#[cfg(test)]
mod tests;
