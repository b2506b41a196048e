//! The records in a PostgreSQL database that several servers share.
//!
//! Transactions that decide something about machines wait for one lock of the database, so that there is one writer among all
//! servers, as there is with a file: each sees everything that was decided before, and none has to be repeated. They are short:
//! few requests of an install decide anything. Reports, of which there are many, wait only for those of the same machine.
//!
//! What was changed is known from the rows: PostgreSQL keeps in each which transaction wrote it, and the numbers of transactions
//! only grow (<https://www.postgresql.org/docs/current/ddl-system-columns.html>).
//!
//! A database that does not answer is no end: what asked gets [`StoreUnavailable`], and the next request tries to connect again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::postgres::error::SqlState;
use ::postgres::types::private::BytesMut;
use ::postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use ::postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement};
use anyhow::{Context, Result, anyhow};
use base::failure::{Class, Classify, Failure};

use super::columns;
use super::records::MachineRecords;
use super::schema::{self, SqlDialect};
use super::sql::{SqlRow, SqlTransaction, SqlValue};
use super::unreadable::unreadable;
use super::{
    ChangeMark, ChangesBody, Durability, MachineStore, RecentChanges, SnapshotBody, StoreUnavailable,
    TransactionBody, WriteLock,
};
use crate::machines::token;
use crate::moment::Moment;
use address::PostgresAddress;
use outage::Outage;
use tls::DatabaseTls;

pub mod address;
mod outage;
mod password;
mod tls;

/// Gets messages for the operator.
pub type StoreNotice = Box<dyn Fn(&str) + Send + Sync>;

const DIALECT: SqlDialect = SqlDialect { bytes: "BYTEA", integer: "BIGINT", boolean: "BOOLEAN", keyed: "" };
/// The first number of our advisory locks, which tells them from those of other programs: "NQRs", as in the file.
const LOCKS: i32 = 0x4e51_5273;
/// The most connections of one server.
const MOST_CONNECTIONS: usize = 8;
/// How long a request waits for one of them.
const TURN: Duration = Duration::from_secs(10);
/// After how many transactions all is read again: rows tell no more than two thousand million of them apart.
const MOST_TRANSACTIONS: u64 = 1 << 30;
/// The largest difference between two clocks that is not reported, in seconds.
const CLOCKS: i64 = 5;

/// For each new connection. The time limits end what waits for a server that was cut off while it had the lock. A commit is on
/// disk before it returns, also where the database's own default is another one.
const SESSION: &str = "SET search_path = nqrust, pg_catalog; SET statement_timeout = '10s'; \
                       SET idle_in_transaction_session_timeout = '15s'; \
                       SELECT set_config('synchronous_commit', 'on', false) \
                       WHERE current_setting('synchronous_commit') = 'off'";

/// See the module.
pub struct PostgresStore {
    shown: String,
    config: Config,
    tls: Option<DatabaseTls>,
    key: [u8; token::KEY],
    pool: Mutex<ConnectionPool>,
    returned: Condvar,
    outage: Outage,
    notice: StoreNotice,
}

#[derive(Default)]
struct ConnectionPool {
    idle: Vec<DatabaseConnection>,
    lent: usize,
}

struct DatabaseConnection {
    client: Client,
    statements: HashMap<String, Statement>,
}

/// A connection with the place that it takes. It is closed when dropped, which rolls its transaction back, unless it was given
/// back.
struct LentConnection<'a> {
    store: &'a PostgresStore,
    connection: Option<DatabaseConnection>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects, and makes the tables where there are none. A database that does not answer is [`Class::Network`], one whose tables
    /// this program cannot read [`Class::Invalid`].
    pub fn open(address: &PostgresAddress, notice: StoreNotice) -> Result<Self> {
        let mut config = address.config.clone();
        if let Some(password) = password::find(address, |name| std::env::var_os(name))? {
            config.password(password.expose());
        }
        let tls = address.tls.then(|| DatabaseTls::trusting(address.authorities.as_deref())).transpose()?;
        let shown = address.shown.clone();
        let (pool, outage) = (Mutex::default(), Outage::default());
        let mut store =
            Self { shown, config, tls, key: [0; token::KEY], pool, returned: Condvar::new(), outage, notice };
        let mut connection = store.connect().map_err(|error| {
            Failure::new(Class::Network, format!("connecting to the database {}", store.shown))
                .because(anyhow!("{}", told(&error)))
                .hint(
                    "Check the address and the name of the user in --state, the password in ~/.pgpass, and pg_hba.conf of the \
                     database; sslrootcert=FILE names an authority that this host does not trust.",
                )
        })?;
        store.key = prepare(&mut connection.client, &store.shown)
            .class(Class::Invalid, || format!("preparing the tables in the database {}", store.shown))?;
        if let Some(difference) = clock_difference(&mut connection.client)? {
            (store.notice)(&format!(
                "warning: the clocks of this server and of the database differ by {difference} s; \
                 synchronize them, because servers compare times that others have stored"
            ));
        }
        locked(&store.pool).idle.push(connection);
        Ok(store)
    }

    fn connect(&self) -> Result<DatabaseConnection, ::postgres::Error> {
        let mut client = match &self.tls {
            Some(tls) => self.config.connect(tls.clone())?,
            None => self.config.connect(NoTls)?,
        };
        client.batch_execute(SESSION)?;
        Ok(DatabaseConnection { client, statements: HashMap::new() })
    }

    /// A connection on which `begin` was run, and the rows that it returned.
    fn begin(&self, begin: &str) -> Result<(LentConnection<'_>, Vec<SimpleQueryMessage>)> {
        let mut lent = LentConnection { store: self, connection: self.take_turn()? };
        // Connections that wait here do not notice that the database was restarted; nothing was run on them yet.
        if let Some(mut connection) = lent.connection.take() {
            match connection.client.simple_query(begin) {
                Ok(rows) => {
                    lent.connection = Some(connection);
                    return Ok((lent, rows));
                }
                Err(error) if is_end(&error) => locked(&self.pool).idle.clear(),
                Err(error) => return Err(self.failed(&error)),
            }
        }
        if let Some(why) = self.outage.is_recent() {
            return Err(StoreUnavailable(why).into());
        }
        let mut connection = self.connect().map_err(|error| {
            let why = told(&error);
            if self.outage.begin(&why) {
                (self.notice)(&format!(
                    "warning: the database {} does not answer: {why}; machines are told to ask again until it does",
                    self.shown
                ));
            }
            StoreUnavailable(why)
        })?;
        if let Some(seconds) = self.outage.end() {
            (self.notice)(&format!("the database {} answers again after {seconds} s", self.shown));
        }
        let rows = connection.client.simple_query(begin).map_err(|error| self.failed(&error))?;
        lent.connection = Some(connection);
        Ok((lent, rows))
    }

    /// Waits until this server may use one more connection. Returns an idle one, if there is one.
    fn take_turn(&self) -> Result<Option<DatabaseConnection>> {
        let pool = locked(&self.pool);
        let all_lent = |pool: &mut ConnectionPool| pool.lent >= MOST_CONNECTIONS;
        let waited = self.returned.wait_timeout_while(pool, TURN, all_lent);
        let (mut pool, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(StoreUnavailable("all connections to it are in use".into()).into());
        }
        pool.lent += 1;
        Ok(pool.idle.pop())
    }

    /// Refuses tables of a newer server, which may have been started meanwhile.
    fn check_version(&self, found: Option<&str>) -> Result<()> {
        let found = found.and_then(|text| text.parse().ok()).unwrap_or_default();
        schema::check(found).map_err(|error| unreadable(&self.shown, error))
    }

    /// An error of a statement. What ends with the connection, or with a limit of time, may succeed later.
    fn failed(&self, error: &::postgres::Error) -> anyhow::Error {
        match is_lost(error) {
            true => StoreUnavailable(told(error)).into(),
            false => anyhow!("the database {}: {}", self.shown, told(error)),
        }
    }
}

impl MachineStore for PostgresStore {
    fn key(&self) -> [u8; token::KEY] {
        self.key
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn check(&self) -> Result<()> {
        // A standby answers what is read, and changes nothing. The value is that of the transaction's own default.
        let (lent, rows) = self
            .begin("BEGIN; SELECT version || ' ' || current_setting('transaction_read_only') FROM version")?;
        let text = rows.iter().filter_map(row_text).next_back().unwrap_or_default().to_owned();
        let (version, read_only) = text.split_once(' ').unwrap_or((&text, ""));
        let checked = self.check_version(Some(version)).and_then(|()| match read_only {
            "off" => Ok(()),
            _ => Err(anyhow!("the database {} can be read only, as a standby", self.shown)),
        });
        lent.end("ROLLBACK", checked)
    }

    fn transact(&self, lock: WriteLock, durability: Durability, change: TransactionBody<'_>) -> Result<()> {
        // A database can end while the servers go on. A machine that was told to install is known after it, and what one server
        // answered is no different for the others; only what is shown may be lost.
        let synchronous = match (lock, durability) {
            (WriteLock::Run(_), Durability::Process) => "SET LOCAL synchronous_commit = off; ",
            _ => "",
        };
        let number = match lock {
            WriteLock::Machines => 0,
            WriteLock::Run(machine) => {
                let (bytes, _) = machine.as_uuid().as_bytes().split_first_chunk().unwrap_or((&[0; 4], &[]));
                // Two machines with the same number only wait for each other.
                i32::from_be_bytes(*bytes) | 1
            }
        };
        // With READ COMMITTED each statement sees what was committed before it, and so what the lock was waited for. The snapshot
        // of a stricter transaction is from before the wait.
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; {synchronous}SELECT pg_advisory_xact_lock({LOCKS}, {number}); \
             SELECT version FROM version"
        );
        let (mut lent, rows) = self.begin(&begin)?;
        self.check_version(rows.iter().filter_map(row_text).next_back())?;
        let mut transaction = PostgresTransaction { lent: &mut lent, failed: false };
        let changed = change(&mut MachineRecords::new(&mut transaction));
        // The database rolls a transaction back that has a failed statement, whatever `change` made of its error.
        let changed = match transaction.failed {
            true => changed.and_then(|()| Err(anyhow!("a statement of a transaction failed"))),
            false => changed,
        };
        lent.end(if changed.is_ok() { "COMMIT" } else { "ROLLBACK" }, changed)
    }

    fn look(&self, look: SnapshotBody<'_>) -> Result<()> {
        let (mut lent, _) = self.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        let mut transaction = PostgresTransaction { lent: &mut lent, failed: false };
        let looked = look(&MachineRecords::new(&mut transaction));
        lent.end("ROLLBACK", looked)
    }

    fn look_at_changes(&self, since: Option<&ChangeMark>, look: ChangesBody<'_>) -> Result<()> {
        self.look(&mut |records| look(records, recent_changes(records, since)?))
    }
}

impl LentConnection<'_> {
    fn connection(&mut self) -> Result<&mut DatabaseConnection> {
        self.connection.as_mut().ok_or_else(|| anyhow!("a connection to the database is used after its end"))
    }

    /// Ends the transaction and gives the connection back. An error of the transaction itself comes before one of its end.
    fn end(mut self, how: &str, outcome: Result<()>) -> Result<()> {
        let store = self.store;
        match self.connection()?.client.simple_query(how) {
            Ok(_) => {
                let connection = self.connection.take();
                locked(&store.pool).idle.extend(connection);
                outcome
            }
            Err(error) => outcome.and_then(|()| Err(store.failed(&error))),
        }
    }
}

impl Drop for LentConnection<'_> {
    fn drop(&mut self) {
        // Closed before another one is opened in its place.
        drop(self.connection.take());
        locked(&self.store.pool).lent -= 1;
        self.store.returned.notify_one();
    }
}

struct PostgresTransaction<'a, 'b> {
    lent: &'a mut LentConnection<'b>,
    failed: bool,
}

impl fmt::Debug for PostgresTransaction<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresTransaction")
    }
}

impl PostgresTransaction<'_, '_> {
    fn run<T>(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        run: impl Fn(&mut Client, &Statement, &[&(dyn ToSql + Sync)]) -> Result<T, ::postgres::Error>,
    ) -> Result<T> {
        let store = self.lent.store;
        let DatabaseConnection { client, statements } = self.lent.connection()?;
        let parameters: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let prepared = match statements.get(sql) {
            Some(statement) => Ok(statement.clone()),
            None => client.prepare(sql).inspect(|statement| {
                statements.insert(sql.to_owned(), statement.clone());
            }),
        };
        prepared.and_then(|statement| run(client, &statement, &parameters)).map_err(|error| {
            self.failed = true;
            store.failed(&error)
        })
    }
}

impl SqlTransaction for PostgresTransaction<'_, '_> {
    fn query(&mut self, sql: &str, values: &[SqlValue]) -> Result<Vec<SqlRow>> {
        let rows = self.run(sql, values, |client, statement, values| client.query(statement, values))?;
        let row = |row: &::postgres::Row| {
            let columns = row.columns().iter().enumerate();
            Ok(SqlRow::new(
                columns.map(|(number, column)| value(row, number, column.type_())).collect::<Result<_>>()?,
            ))
        };
        rows.iter().map(row).collect()
    }

    fn execute(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64> {
        self.run(sql, values, |client, statement, values| client.execute(statement, values))
    }
}

impl ToSql for SqlValue {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Boolean(value) => value.to_sql(kind, out),
            Self::Integer(value) => value.to_sql(kind, out),
            // PostgreSQL has no texts with this character, which a machine may send.
            Self::Text(text) if text.contains('\0') => text.replace('\0', "\u{fffd}").to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Bytes(bytes) => bytes.as_slice().to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::BOOL, Type::INT8, Type::TEXT, Type::BYTEA].contains(kind)
    }

    to_sql_checked!();
}

fn value(row: &::postgres::Row, number: usize, kind: &Type) -> Result<SqlValue> {
    Ok(match *kind {
        Type::BOOL => row.try_get::<_, Option<bool>>(number)?.into(),
        Type::INT8 => row.try_get::<_, Option<i64>>(number)?.into(),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(number)?.into(),
        _ => row.try_get::<_, Option<String>>(number)?.into(),
    })
}

/// Makes the tables where there are none, or changes those of an earlier version. Returns the key.
fn prepare(client: &mut Client, shown: &str) -> Result<[u8; token::KEY]> {
    let encoding: String = client.query_one("SELECT current_setting('server_encoding')", &[])?.try_get(0)?;
    if encoding != "UTF8" {
        return Err(anyhow!("its encoding is {encoding}, and only UTF8 holds every name of a machine"));
    }
    let mut transaction = client.transaction()?;
    // Servers that start together make one schema.
    transaction.batch_execute(&format!("SELECT pg_advisory_xact_lock({LOCKS}, 0)"))?;
    let one = |transaction: &mut ::postgres::Transaction<'_>, sql: &str| -> Result<bool> {
        Ok(transaction.query_one(sql, &[])?.try_get(0)?)
    };
    if !one(&mut transaction, "SELECT to_regclass('nqrust.version') IS NOT NULL")? {
        // Who may not make schemas in the database may own one that an administrator has made.
        if !one(&mut transaction, "SELECT to_regnamespace('nqrust') IS NOT NULL")? {
            transaction.batch_execute("CREATE SCHEMA nqrust")?;
        }
        transaction.batch_execute(
            "CREATE TABLE version (version BIGINT NOT NULL); INSERT INTO version (version) VALUES (0)",
        )?;
    }
    let found: i64 = transaction.query_one("SELECT version FROM version", &[])?.try_get(0)?;
    let steps = schema::steps(found, DIALECT).map_err(|error| unreadable(shown, error))?;
    if !steps.is_empty() {
        steps.iter().try_for_each(|step| transaction.batch_execute(step))?;
        transaction.execute("UPDATE version SET version = $1", &[&schema::VERSION])?;
    }
    let key = match transaction.query_opt("SELECT value FROM key", &[])? {
        Some(row) => row.try_get::<_, Vec<u8>>(0)?,
        None => {
            let key = token::random::<{ token::KEY }>()?.to_vec();
            transaction.execute("INSERT INTO key (value) VALUES ($1)", &[&key])?;
            key
        }
    };
    transaction.commit()?;
    key.try_into().map_err(|_| anyhow!("its key for tokens has another length"))
}

/// What others committed since the snapshot of the mark: every transaction below its number had ended by then (PostgreSQL,
/// section 9.27.9). A transaction that runs for hours lets more be read again than was changed.
fn recent_changes(records: &MachineRecords<'_>, since: Option<&ChangeMark>) -> Result<RecentChanges> {
    // The numbers are of one run of a server: a standby that takes its place may use some of them again.
    let sql =
        "SELECT pg_postmaster_start_time()::text, pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
    let mut row = records.query(sql, &[])?.pop().context("the database does not tell its snapshot")?;
    let mark = ChangeMark { origin: row.take()?, number: u64::try_from(row.take::<i64>()?)? };
    let since = since.filter(|since| {
        since.origin == mark.origin
            && mark
                .number
                .checked_sub(since.number)
                .is_some_and(|transactions| transactions < MOST_TRANSACTIONS)
    });
    let Some(since) = since else { return Ok(RecentChanges { mark, machines: None }) };
    // Rows have only the low half of the number. The age of the rows that have none of their own any more is the highest.
    let is_newer = "age(xmin) <= age($1::text::xid8::xid)";
    let sql = format!(
        "SELECT id FROM machines WHERE {is_newer} UNION SELECT machine FROM runs WHERE {is_newer} \
         UNION SELECT machine FROM logs WHERE {is_newer}"
    );
    let rows = records.query(&sql, &[since.number.to_string().into()])?;
    let machines = rows.into_iter().map(|mut row| columns::id(&mut row)).collect::<Result<_>>()?;
    Ok(RecentChanges { mark, machines: Some(machines) })
}

/// How many seconds the clock of this server is from that of the database, if that is too many.
fn clock_difference(client: &mut Client) -> Result<Option<i64>> {
    let sql = "SELECT extract(epoch FROM clock_timestamp())::bigint";
    let theirs: i64 = client.query_one(sql, &[])?.try_get(0)?;
    let difference = i64::try_from(Moment::now().0)?.saturating_sub(theirs);
    Ok((difference.abs() > CLOCKS).then_some(difference))
}

/// Whether an error is the end of a connection, such as a restart of the database.
fn is_end(error: &::postgres::Error) -> bool {
    error.code().is_none_or(|code| code.code().starts_with("57P"))
}

/// Whether an error is of the connection or of a limit, and not of the statement.
fn is_lost(error: &::postgres::Error) -> bool {
    let Some(code) = error.code() else { return true };
    // Classes of errors: connection, resources, the operator's intervention, the system (PostgreSQL, appendix A).
    let is_class = ["08", "53", "57", "58"].iter().any(|class| code.code().starts_with(class));
    let others = [
        &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        &SqlState::LOCK_NOT_AVAILABLE,
        &SqlState::READ_ONLY_SQL_TRANSACTION,
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
    ];
    is_class || others.contains(&code)
}

/// An error with its causes in one line.
fn told(error: &::postgres::Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        texts.push(cause.to_string());
        next = cause.source();
    }
    texts.join(": ").replace('\n', " ")
}

fn row_text(message: &SimpleQueryMessage) -> Option<&str> {
    if let SimpleQueryMessage::Row(row) = message { row.get(0) } else { None }
}

/// Ignores poisoning: nothing in a pool is half changed.
fn locked(pool: &Mutex<ConnectionPool>) -> MutexGuard<'_, ConnectionPool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
