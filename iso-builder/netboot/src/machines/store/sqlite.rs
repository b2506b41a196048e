//! The records in a file: SQLite with a write-ahead log (<https://sqlite.org/wal.html>).
//!
//! There are two connections: one that writes, and one that reads, for which the first does not wait. A commit with
//! `synchronous=FULL` reaches the disk before it returns, with `NORMAL` the kernel. SQLite's `user_version` is the version of
//! the tables.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow};
use base::failure::{Class, Classify};
use base::files;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, TransactionBehavior, params_from_iter};

use super::changes::ChangedMachines;
use super::lock::{StateLock, lock};
use super::records::MachineRecords;
use super::schema::{self, SqlDialect};
use super::sql::{SqlRow, SqlTransaction, SqlValue};
use super::unreadable::unreadable;
use super::{ChangeMark, ChangesBody, Durability, MachineStore, SnapshotBody, TransactionBody, WriteLock};
use crate::machines::token;

/// The file in the state directory, unless another one is named.
pub const NAME: &str = "machines.db";
/// SQLite's `application_id`, which tells this file from other databases: "NQRs".
const APPLICATION: i64 = 0x4e51_5273;

const DIALECT: SqlDialect =
    SqlDialect { bytes: "BLOB", integer: "INTEGER", boolean: "INTEGER", keyed: " WITHOUT ROWID" };

/// Locked by one server at a time.
pub struct SqliteStore {
    path: PathBuf,
    /// The device and the inode of the file.
    identity: (u64, u64),
    key: [u8; token::KEY],
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    /// The lock of the directory keeps others from the file.
    changed: ChangedMachines,
    _lock: Option<StateLock>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store in the file `path`, or makes it, and locks its directory. A file that cannot be read is [`Class::Invalid`]: if it was taken for empty, every machine would install again.
    pub fn open(path: &Path) -> Result<Self> {
        let directory = files::parent(path);
        files::make_directory(directory, 0o700).class(Class::DiskIo, || "preparing --state".into())?;
        Self::with_lock(path, Some(lock(directory)?))
    }

    /// Opens the store in the file `path`, whose directory is locked already unless this is its lock.
    pub(super) fn with_lock(path: &Path, lock: Option<StateLock>) -> Result<Self> {
        let path = path.to_owned();
        let open = || -> Result<_> {
            // SQLite gives the journal the mode of the file.
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            let found = file.metadata()?;
            // Closed before SQLite locks it: closing any descriptor of a file ends all locks of the process (fcntl(2)).
            drop(file);
            let mut writer = connect(&path)?;
            let key = prepare(&mut writer)?;
            let reader = connect(&path)?;
            reader.pragma_update(None, "query_only", true)?;
            Ok(((found.dev(), found.ino()), key, writer, reader))
        };
        let (identity, key, writer, reader) = open().map_err(|error| unreadable(path.display(), error))?;
        Ok(Self {
            path,
            identity,
            key,
            writer: Mutex::new(writer),
            reader: Mutex::new(reader),
            changed: ChangedMachines::default(),
            _lock: lock,
        })
    }
}

impl MachineStore for SqliteStore {
    fn key(&self) -> [u8; token::KEY] {
        self.key
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        let what = || format!("reading the state of the machines in {}", self.path.display());
        // A file that was removed or replaced goes on being read and written, and is gone with the process.
        let named = fs::metadata(&self.path).class(Class::DiskIo, what)?;
        if self.identity != (named.dev(), named.ino()) {
            return Err(anyhow!("it is another file than the one that this server has open"))
                .class(Class::DiskIo, what);
        }
        let connection = locked(&self.reader);
        let read = connection.query_row("SELECT count(*) FROM key", [], |_| Ok(()));
        read.class(Class::DiskIo, what)
    }

    // There is one writer, so that nothing more is to be locked.
    fn transact(&self, _: WriteLock, durability: Durability, change: TransactionBody<'_>) -> Result<()> {
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
        let mut open = &*transaction;
        let mut records = MachineRecords::new(&mut open);
        let (changed, machines) = (change(&mut records), std::mem::take(&mut records.changed));
        let done = changed.and_then(|()| transaction.commit().class(Class::DiskIo, what));
        // Of a transaction that failed, too: what is read again may be the same.
        self.changed.add(machines);
        done
    }

    fn look(&self, look: SnapshotBody<'_>) -> Result<()> {
        let what = || "reading the state of the machines".to_owned();
        let mut connection = locked(&self.reader);
        let transaction = connection.transaction().class(Class::DiskIo, what)?;
        look(&MachineRecords::new(&mut &*transaction))
    }

    fn look_at_changes(&self, since: Option<&ChangeMark>, look: ChangesBody<'_>) -> Result<()> {
        // Before the snapshot: what is changed between the two is read again.
        let changes = self.changed.since(since);
        self.look(&mut |records| look(records, changes.clone()))
    }
}

impl SqlTransaction for &Connection {
    fn query(&mut self, sql: &str, values: &[SqlValue]) -> Result<Vec<SqlRow>> {
        let mut statement = self.prepare_cached(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|column| value(row.get_ref(column)?));
            found.push(SqlRow::new(values.collect::<Result<_>>()?));
        }
        Ok(found)
    }

    fn execute(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64> {
        Ok(self.prepare_cached(sql)?.execute(params_from_iter(values))? as u64)
    }
}

impl rusqlite::ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Boolean(value) => ValueRef::Integer((*value).into()),
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn value(column: ValueRef<'_>) -> Result<SqlValue> {
    Ok(match column {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(value) => SqlValue::Integer(value),
        ValueRef::Text(text) => SqlValue::Text(std::str::from_utf8(text)?.to_owned()),
        ValueRef::Blob(bytes) => SqlValue::Bytes(bytes.to_vec()),
        ValueRef::Real(_) => return Err(anyhow!("a column of the state is a floating-point number")),
    })
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

/// Makes the tables where there are none, or changes those of an earlier version. Returns the key.
fn prepare(connection: &mut Connection) -> Result<[u8; token::KEY]> {
    let number = |connection: &Connection, name: &str| -> rusqlite::Result<i64> {
        connection.pragma_query_value(None, name, |row| row.get(0))
    };
    let found = (number(connection, "application_id")?, number(connection, "user_version")?);
    let is_new = found == (0, 0) && is_empty(connection)?;
    if !is_new && found.0 != APPLICATION {
        return Err(anyhow!("it is the database of another program"));
    }
    let steps = schema::steps(found.1, DIALECT)?;
    if !steps.is_empty() {
        connection.pragma_update(None, "synchronous", "FULL")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        steps.iter().try_for_each(|step| transaction.execute_batch(step))?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", schema::VERSION)?;
        if is_new {
            transaction
                .execute("INSERT INTO key (value) VALUES (?1)", [token::random::<{ token::KEY }>()?])?;
        }
        transaction.commit()?;
    }
    connection.query_row("SELECT value FROM key", [], |row| row.get(0)).context("reading the key for tokens")
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

#[cfg(test)]
mod tests;
