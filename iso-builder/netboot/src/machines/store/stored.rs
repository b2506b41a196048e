//! Records of machines as they are stored.

use std::hash::{Hash, Hasher};

use anyhow::{Context, Result};

use super::columns;
use super::sql::SqlRow;
use crate::machines::id::MachineId;
use crate::machines::machine::Machine;

/// A record that has not been read: to see by its hash that it is the same as before costs less.
#[derive(Debug)]
pub struct StoredMachine {
    pub id: MachineId,
    row: SqlRow,
}

impl StoredMachine {
    pub(super) fn new(row: SqlRow) -> Result<Self> {
        let id = row.rest().first().context("a record of the state has no columns")?;
        Ok(Self { id: columns::id_of(id.clone())?, row })
    }

    pub fn read(self) -> Result<Machine> {
        columns::machine(self.row)
    }
}

impl Hash for StoredMachine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.row.rest().hash(state);
    }
}
