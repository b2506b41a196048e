//! The store of machines' records. [`MachineStore`] is its interface; [`sqlite`] keeps it in a file.
//! [`super::registry`] is the only caller and decides what to change.
//!
//! Every change is a transaction: it happens whole or not at all. A change reads and writes only the records that it is
//! about, so that its cost does not depend on the number of machines.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use anyhow::{Result, anyhow};
use base::digest::Digest;
use serde::Serialize;

use super::id::MachineId;
use super::identity_keys::IdentityKey;
use super::machine::Machine;
use super::token;
use crate::moment::Moment;

mod import;
pub mod sqlite;
mod unreadable;

/// The most machines that are kept which only asked and which no configuration names. Anybody on the network can invent
/// more.
pub const MOST_STRANGERS: u32 = 1000;
pub const MOST_CONFLICTS: u32 = 100;

/// The failures that a change survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power cut. For changes without which something could be erased twice.
    Full,
    /// The end of the server's process; a power cut may lose the latest changes. For what is only shown, and for what a
    /// machine that boots again asks for again.
    Process,
}

/// A request whose identifiers belong to more than one machine or configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdentityConflict {
    /// The same for the same client, machines and configurations.
    pub id: String,
    /// The client's address.
    pub address: IpAddr,
    /// The identifiers that the client sent, for people.
    pub told: String,
    /// The configurations and machines that the identifiers belong to.
    pub between: Vec<String>,
    pub first: Moment,
    pub last: Moment,
    pub times: u64,
}

impl IdentityConflict {
    /// A conflict that happened for the first time.
    #[must_use]
    pub fn new(address: IpAddr, told: String, between: Vec<String>, now: Moment) -> Self {
        let digest = Digest::of(format!("{address}\n{}", between.join("\n")).as_bytes()).to_string();
        let id = digest[..16].to_owned();
        Self { id, address, told, between, first: now, last: now, times: 1 }
    }
}

pub trait MachineReader {
    fn get(&self, id: MachineId) -> Result<Option<Machine>>;
    /// The record to which a configuration is assigned.
    fn assigned(&self, configuration: &str) -> Result<Option<Machine>>;
    /// The records that have one of these identifiers; only the first few.
    fn with_any(&self, marks: &BTreeSet<IdentityKey>) -> Result<Vec<Machine>>;
    /// The first `limit` records, beginning with those that an operator has to look at.
    fn list(&self, limit: usize) -> Result<Vec<Machine>>;
    fn count(&self) -> Result<usize>;
    /// The latest first.
    fn conflicts(&self) -> Result<Vec<IdentityConflict>>;
}

pub trait MachineWriter: MachineReader {
    /// Adds a record, or replaces the one with its id.
    fn put(&mut self, machine: &Machine) -> Result<()>;
    fn remove(&mut self, id: MachineId) -> Result<()>;
    /// Removes the strangers that were seen the longest ago, so that fewer than [`MOST_STRANGERS`] remain.
    fn make_room_for_a_stranger(&mut self) -> Result<()>;
    /// Adds a conflict or counts it again; beyond [`MOST_CONFLICTS`] the oldest is removed.
    fn add_conflict(&mut self, conflict: &IdentityConflict) -> Result<()>;
    /// Returns whether it was there.
    fn remove_conflict(&mut self, id: &str) -> Result<bool>;
}

/// Runs inside a transaction.
pub type TransactionBody<'a> = &'a mut dyn FnMut(&mut dyn MachineWriter) -> Result<()>;
/// Sees the records of one moment.
pub type SnapshotBody<'a> = &'a mut dyn FnMut(&dyn MachineReader) -> Result<()>;

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
        change: impl FnOnce(&mut dyn MachineWriter) -> Result<T>,
    ) -> Result<T> {
        let (mut change, mut outcome) = (Some(change), None);
        self.transact(durability, &mut |records| {
            outcome = change.take().map(|change| change(records)).transpose()?;
            Ok(())
        })?;
        outcome.ok_or_else(|| anyhow!("a transaction was not run"))
    }

    pub fn read<T>(&self, look: impl FnOnce(&dyn MachineReader) -> Result<T>) -> Result<T> {
        let (mut look, mut outcome) = (Some(look), None);
        self.look(&mut |records| {
            outcome = look.take().map(|look| look(records)).transpose()?;
            Ok(())
        })?;
        outcome.ok_or_else(|| anyhow!("a transaction was not run"))
    }
}
