//! The store of machines' records. [`MachineStore`] is its interface; [`sqlite`] keeps it in a file, [`postgres`] in a
//! database that several servers share. [`super::registry`] is the only caller and decides what to change.
//!
//! [`records`] has the SQL, which is the same for both. A store only runs transactions; the words in which the databases
//! differ are in [`schema`].
//!
//! Every change is a transaction: it happens whole or not at all. A change reads and writes only the records that it is
//! about, so that its cost does not depend on the number of machines.

use std::fmt;

use anyhow::{Result, anyhow};

use super::id::MachineId;
use super::token;

mod access_tokens;
mod audit;
mod changes;
mod columns;
mod conflict;
mod import;
pub mod location;
mod lock;
mod metered;
pub mod postgres;
mod records;
mod run;
mod schema;
mod sql;
pub mod sqlite;
mod stored;
mod unavailable;
mod unreadable;

pub use changes::{ChangeMark, RecentChanges};
pub use conflict::IdentityConflict;
pub use metered::MeteredStore;
pub use records::MachineRecords;
pub use run::RunRecord;
pub use stored::StoredMachine;
pub use unavailable::StoreUnavailable;

/// The failures that a change survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power cut. For changes without which something could be erased twice.
    Full,
    /// The end of the server's process; a power cut may lose the latest changes. For what is only shown, and for what a
    /// machine that boots again asks for again.
    Process,
}

/// Runs inside a transaction.
pub type TransactionBody<'a> = &'a mut dyn FnMut(&mut MachineRecords<'_>) -> Result<()>;
/// Sees the records of one moment.
pub type SnapshotBody<'a> = &'a mut dyn FnMut(&MachineRecords<'_>) -> Result<()>;
/// The same, and is told what was changed since an earlier moment.
pub type ChangesBody<'a> = &'a mut dyn FnMut(&MachineRecords<'_>, RecentChanges) -> Result<()>;

/// What a transaction that writes keeps others from writing, on this server and on all that share the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteLock {
    /// All records but runs and their logs: whoever decides what a machine boots sees what was decided before.
    Machines,
    /// The run of one machine and its log.
    Run(MachineId),
}

/// A call fails with [`StoreUnavailable`] where the same call may succeed later.
pub trait MachineStore: fmt::Debug + Send + Sync {
    /// The random key for tokens, which is made with the store.
    fn key(&self) -> [u8; token::KEY];
    /// Whether several servers can use it at a time.
    fn is_shared(&self) -> bool;
    /// Whether the records can be read and changed now, without a wait for those who change them.
    fn check(&self) -> Result<()>;
    /// Runs a transaction that begins once it has the lock. If `change` fails or cannot be stored, nothing has changed; only if
    /// the connection to a database ends during the commit, the change may have been stored although this fails.
    fn transact(&self, lock: WriteLock, durability: Durability, change: TransactionBody<'_>) -> Result<()>;
    /// Reads the records. Concurrent changes neither wait for it nor are seen by it.
    fn look(&self, look: SnapshotBody<'_>) -> Result<()>;
    /// The same, with what anybody has changed since the read that had this mark.
    fn look_at_changes(&self, since: Option<&ChangeMark>, look: ChangesBody<'_>) -> Result<()>;
}

impl dyn MachineStore + '_ {
    /// Changes machines' records.
    pub fn change<T>(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut MachineRecords<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transacted(WriteLock::Machines, durability, change)
    }

    /// Changes the run of a machine. A power cut may lose it: it is only shown.
    pub fn change_run<T>(
        &self,
        machine: MachineId,
        change: impl FnOnce(&mut MachineRecords<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transacted(WriteLock::Run(machine), Durability::Process, change)
    }

    /// [`MachineStore::transact`] with a result.
    fn transacted<T>(
        &self,
        lock: WriteLock,
        durability: Durability,
        change: impl FnOnce(&mut MachineRecords<'_>) -> Result<T>,
    ) -> Result<T> {
        let (mut change, mut outcome) = (Some(change), None);
        self.transact(lock, durability, &mut |records| {
            outcome = change.take().map(|change| change(records)).transpose()?;
            Ok(())
        })?;
        outcome.ok_or_else(|| anyhow!("a transaction was not run"))
    }

    pub fn read<T>(&self, look: impl FnOnce(&MachineRecords<'_>) -> Result<T>) -> Result<T> {
        let (mut look, mut outcome) = (Some(look), None);
        self.look(&mut |records| {
            outcome = look.take().map(|look| look(records)).transpose()?;
            Ok(())
        })?;
        outcome.ok_or_else(|| anyhow!("a transaction was not run"))
    }

    /// [`MachineStore::look_at_changes`] with a result.
    pub fn read_changes<T>(
        &self,
        since: Option<&ChangeMark>,
        look: impl FnOnce(&MachineRecords<'_>, RecentChanges) -> Result<T>,
    ) -> Result<T> {
        let (mut look, mut outcome) = (Some(look), None);
        self.look_at_changes(since, &mut |records, changes| {
            outcome = look.take().map(|look| look(records, changes)).transpose()?;
            Ok(())
        })?;
        outcome.ok_or_else(|| anyhow!("a transaction was not run"))
    }
}

#[cfg(test)]
mod tests;
