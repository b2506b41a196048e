//! Where the server keeps what it knows of its machines. [`MachineStore`] is what the rest of the server sees of it;
//! [`sqlite`] keeps it in a file. [`super::machine_registry`] is the only caller: it decides what to change.
//!
//! Every change is a transaction: it happens whole or not at all, whatever fails in it. A change reads and writes the
//! records that it is about and no others, so that it costs the same however many machines there are.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use anyhow::{Result, anyhow};
use base::digest::Digest;
use serde::Serialize;

use super::identity_keys::IdentityKey;
use super::machine::Machine;
use super::machine_id::MachineId;
use super::moment::Moment;
use super::token;

mod import;
pub mod sqlite;
mod unreadable;

/// Machines that no configuration names and of which nothing is known but that they asked: so many are remembered.
/// Anybody on the network can make up more.
pub const MOST_STRANGERS: u32 = 1000;
/// Conflicts that are remembered, at most.
pub const MOST_CONFLICTS: u32 = 100;

/// What survives which end of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once the change has returned, it survives a power cut. For what would let something be erased twice if it was lost.
    Full,
    /// It survives the death of the server; the latest of a power cut may be lost. For what is merely shown, and for what
    /// a machine that starts again asks for again.
    Process,
}

/// A request whose marks belong to more than one machine or configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdentityConflict {
    /// Its name here: the same for the same client, machines and configurations.
    pub id: String,
    /// The address of the client.
    pub address: IpAddr,
    /// The marks that the client told, for people.
    pub told: String,
    /// The configurations and machines that the marks belong to.
    pub between: Vec<String>,
    /// When it happened first.
    pub first: Moment,
    /// When it happened last.
    pub last: Moment,
    /// How often.
    pub times: u64,
}

impl IdentityConflict {
    /// One that has happened for the first time.
    #[must_use]
    pub fn new(address: IpAddr, told: String, between: Vec<String>, now: Moment) -> Self {
        let digest = Digest::of(format!("{address}\n{}", between.join("\n")).as_bytes()).to_string();
        let id = digest[..16].to_owned();
        Self { id, address, told, between, first: now, last: now, times: 1 }
    }
}

/// What can be looked up.
pub trait MachineReader {
    /// One record.
    fn get(&self, id: MachineId) -> Result<Option<Machine>>;
    /// The record of the assignment of a configuration.
    fn assigned(&self, configuration: &str) -> Result<Option<Machine>>;
    /// The records that have one of these marks; no more than the first few.
    fn with_any(&self, marks: &BTreeSet<IdentityKey>) -> Result<Vec<Machine>>;
    /// The first `limit` records, those first that an operator has to look at.
    fn list(&self, limit: usize) -> Result<Vec<Machine>>;
    /// How many records there are.
    fn count(&self) -> Result<usize>;
    /// The conflicts, the latest first.
    fn conflicts(&self) -> Result<Vec<IdentityConflict>>;
}

/// What can be changed.
pub trait MachineWriter: MachineReader {
    /// Adds a record, or puts it in the place of the one with its name.
    fn put(&mut self, machine: &Machine) -> Result<()>;
    /// Removes a record.
    fn remove(&mut self, id: MachineId) -> Result<()>;
    /// Removes the strangers that were seen the longest ago, so that there are fewer than [`MOST_STRANGERS`].
    fn make_room_for_a_stranger(&mut self) -> Result<()>;
    /// Adds a conflict, or counts it again; of too many the oldest goes.
    fn add_conflict(&mut self, conflict: &IdentityConflict) -> Result<()>;
    /// Removes a conflict; whether there was one of this name.
    fn remove_conflict(&mut self, id: &str) -> Result<bool>;
}

/// Does something with the records in a transaction.
pub type TransactionBody<'a> = &'a mut dyn FnMut(&mut dyn MachineWriter) -> Result<()>;
/// Looks at the records as they are at one moment.
pub type SnapshotBody<'a> = &'a mut dyn FnMut(&dyn MachineReader) -> Result<()>;

/// Where the records are kept. One server uses it at a time.
pub trait MachineStore: fmt::Debug + Send + Sync {
    /// The key for tokens, which is drawn when the store is made.
    fn key(&self) -> [u8; token::KEY];
    /// Runs a transaction. Where `change` fails, or what it did cannot be kept, nothing has changed.
    fn transact(&self, durability: Durability, change: TransactionBody<'_>) -> Result<()>;
    /// Looks at the records. Changes at the same time neither wait for it nor are seen by it.
    fn look(&self, look: SnapshotBody<'_>) -> Result<()>;
}

impl dyn MachineStore + '_ {
    /// [`MachineStore::transact`] with a result.
    pub fn change<T>(
        &self,
        durability: Durability,
        change: impl FnOnce(&mut dyn MachineWriter) -> Result<T>,
    ) -> Result<T> {
        let (mut change, mut outcome) = (Some(change), None);
        self.transact(durability, &mut |records| {
            outcome = change.take().map(|change| change(records)).transpose()?;
            Ok(())
        })?;
        outcome.ok_or_else(|| anyhow!("a transaction was not run"))
    }

    /// [`MachineStore::look`] with a result.
    pub fn read<T>(&self, look: impl FnOnce(&dyn MachineReader) -> Result<T>) -> Result<T> {
        let (mut look, mut outcome) = (Some(look), None);
        self.look(&mut |records| {
            outcome = look.take().map(|look| look(records)).transpose()?;
            Ok(())
        })?;
        outcome.ok_or_else(|| anyhow!("a transaction was not run"))
    }
}
