//! The tables of the store, and how those of an earlier version are changed. Each database keeps the version of its own.
//!
//! A version only adds to the one before it: while the servers of a fleet are replaced one by one, the older ones still run.

use anyhow::{Result, anyhow};

/// The version that this program reads and writes: the number of [`STEPS`].
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// The words in which SQLite and PostgreSQL differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqlDialect {
    pub bytes: &'static str,
    pub integer: &'static str,
    pub boolean: &'static str,
    /// What ends a table that has a primary key.
    pub keyed: &'static str,
}

/// The statements that make each version from the one before it. Those of a released version never change.
const STEPS: [&str; 3] = [
    "
CREATE TABLE key (value {bytes} NOT NULL);
CREATE TABLE machines (
    id {bytes} PRIMARY KEY NOT NULL,
    assigned TEXT UNIQUE,
    identity TEXT NOT NULL,
    state TEXT NOT NULL,
    permission TEXT NOT NULL,
    configuration TEXT,
    first_seen {integer} NOT NULL,
    last_seen {integer} NOT NULL,
    since {integer} NOT NULL,
    generation {integer} NOT NULL,
    taken TEXT,
    clients TEXT NOT NULL,
    stranger {boolean} NOT NULL,
    attention {integer} NOT NULL
){keyed};
CREATE INDEX strangers ON machines (last_seen) WHERE stranger;
CREATE INDEX attention ON machines (attention, last_seen);
CREATE TABLE marks (mark TEXT NOT NULL, machine {bytes} NOT NULL, PRIMARY KEY (mark, machine)){keyed};
CREATE INDEX marks_of ON marks (machine);
CREATE TABLE conflicts (
    id TEXT PRIMARY KEY NOT NULL,
    address TEXT NOT NULL,
    told TEXT NOT NULL,
    parties TEXT NOT NULL,
    first {integer} NOT NULL,
    last {integer} NOT NULL,
    times {integer} NOT NULL
){keyed};
",
    "
CREATE TABLE runs (machine {bytes} PRIMARY KEY NOT NULL, run TEXT NOT NULL, heard {integer}){keyed};
CREATE TABLE logs (
    machine {bytes} PRIMARY KEY NOT NULL,
    log TEXT NOT NULL,
    size {integer} NOT NULL,
    received {integer} NOT NULL
){keyed};
CREATE INDEX logs_received ON logs (received, machine, size);
",
    "
CREATE TABLE access_tokens (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT UNIQUE NOT NULL,
    role TEXT NOT NULL,
    digest {bytes} NOT NULL,
    created {integer} NOT NULL,
    expires {integer},
    uses {integer}
){keyed};
CREATE TABLE audit (
    number {integer} PRIMARY KEY NOT NULL,
    moment {integer} NOT NULL,
    machine {bytes},
    entry TEXT NOT NULL
){keyed};
CREATE INDEX audit_machine ON audit (machine, number);
",
];

/// The statements that lead from version `found` to [`VERSION`], one text for each version between them.
pub(super) fn steps(found: i64, dialect: SqlDialect) -> Result<Vec<String>> {
    check(found)?;
    let SqlDialect { bytes, integer, boolean, keyed } = dialect;
    let words = [("{bytes}", bytes), ("{integer}", integer), ("{boolean}", boolean), ("{keyed}", keyed)];
    let written =
        |step: &&str| words.iter().fold((*step).to_owned(), |text, (name, word)| text.replace(name, word));
    Ok(STEPS.iter().skip(usize::try_from(found)?).map(written).collect())
}

/// Refuses the state of a newer program.
pub(super) fn check(found: i64) -> Result<()> {
    match (0..=VERSION).contains(&found) {
        true => Ok(()),
        false => Err(anyhow!("it has format {found}, and this program reads format {VERSION}")),
    }
}
