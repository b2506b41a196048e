//! The store of machines' records. [`MachineStore`] is its interface; [`sqlite`] keeps it in a file.
//! [`super::registry`] is the only caller and decides what to change.
//!
//! Every change is a transaction: it happens whole or not at all. A change reads and writes only the records that it is
//! about, so that its cost does not depend on the number of machines.

use std::fmt;

use anyhow::{Result, anyhow};

use super::token;

mod columns;
mod conflict;
mod import;
mod records;
pub mod sqlite;
mod unreadable;

pub use conflict::IdentityConflict;
pub use records::MachineRecords;

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

/// Used by one server at a time.
pub trait MachineStore: fmt::Debug + Send + Sync {
    /// The random key for tokens, which is made with the store.
    fn key(&self) -> [u8; token::KEY];
    /// Runs a transaction. If `change` fails or cannot be stored, nothing has changed.
    fn transact(&self, durability: Durability, change: TransactionBody<'_>) -> Result<()>;
    /// Reads the records. Concurrent changes neither wait for it nor are seen by it.
    fn look(&self, look: SnapshotBody<'_>) -> Result<()>;
}

impl dyn MachineStore + '_ {
    /// [`MachineStore::transact`] with a result.
    pub fn change<T>(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut MachineRecords<'_>) -> Result<T>,
    ) -> Result<T> {
        let (mut change, mut outcome) = (Some(change), None);
        self.transact(durability, &mut |records| {
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
}
