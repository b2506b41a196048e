//! Imports what earlier versions of this program kept, one JSON file with all machines, `machines.json`, and what a server kept
//! in a file before it got a database. Each is imported once, whatever its size, and renamed.
//!
//! Tokens are not imported: a machine that is being installed at that time reports no more, and one that was told to boot and
//! has not taken its configuration has to be booted again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Result, anyhow};
use base::failure::{Class, Classify};
use base::files;
use model::machine::Identity;
use serde::Deserialize;

use super::sqlite::{self, SqliteStore};
use super::unreadable::unreadable;
use super::{Durability, MachineStore};
use crate::machines::id::MachineId;
use crate::machines::machine::{DeploymentState, InstallPermission, Machine};
use crate::moment::Moment;

const NAME: &str = "machines.json";
/// The names of the files after their import.
const MIGRATED: &str = "machines.json.migrated";
const MIGRATED_FILE: &str = "machines.db.migrated";
const FORMAT: u32 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachinesFile {
    format: u32,
    machines: Vec<ImportedMachine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportedMachine {
    id: MachineId,
    identity: Identity,
    state: DeploymentState,
    #[serde(default)]
    permission: InstallPermission,
    #[serde(default)]
    configuration: Option<String>,
    first_seen: Moment,
    last_seen: Moment,
    since: Moment,
    #[serde(default, rename = "tokens")]
    _tokens: serde::de::IgnoredAny,
}

/// True if a configuration of this name was the fallback.
fn is_fallback(name: &str) -> bool {
    matches!(name, "default.yaml" | "default.yml")
}

/// Imports the file of an earlier version in `directory`, if there is one.
pub(super) fn from_json(directory: &Path, store: &dyn MachineStore) -> Result<()> {
    let path = directory.join(NAME);
    let what = || format!("importing {}", path.display());
    if !fs::exists(&path).class(Class::DiskIo, what)? {
        return Ok(());
    }
    let bytes = fs::read(&path).class(Class::DiskIo, what)?;
    let content: MachinesFile =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(path.display(), error.into()))?;
    if content.format != FORMAT {
        let why = anyhow!("it has format {}, and this program reads format {FORMAT}", content.format);
        return Err(unreadable(path.display(), why));
    }
    add(merged(content.machines.into_iter().map(record)), store)?;
    put_away(&path, MIGRATED)
}

/// Imports the machines of a server that kept its state in a file of `directory`, if there is one: in a database that does not know
/// them, installed machines would install again.
pub(super) fn from_file(directory: &Path, store: &dyn MachineStore) -> Result<()> {
    let path = directory.join(sqlite::NAME);
    if !fs::exists(&path).class(Class::DiskIo, || format!("importing {}", path.display()))? {
        return Ok(());
    }
    let file = SqliteStore::with_lock(&path, None)?;
    let from: &dyn MachineStore = &file;
    add(from.read(|records| records.list(usize::MAX))?, store)?;
    drop(file);
    put_away(&path, MIGRATED_FILE)
}

/// Adds machines. Existing records are kept: if the server ends before the file is renamed, it is imported again.
fn add(machines: Vec<Machine>, store: &dyn MachineStore) -> Result<()> {
    store.change(Durability::Full, |records| {
        for machine in machines {
            let assigned = machine.assigned.as_deref().map(|name| records.assigned(name)).transpose()?;
            if records.get(machine.id)?.is_none() && assigned.flatten().is_none() {
                records.put(&machine)?;
            }
        }
        Ok(())
    })
}

/// Renames a file that was imported.
fn put_away(path: &Path, name: &str) -> Result<()> {
    let (what, directory) = (|| format!("importing {}", path.display()), files::parent(path));
    fs::rename(path, directory.join(name)).class(Class::DiskIo, what)?;
    File::open(directory).and_then(|directory| directory.sync_all()).class(Class::DiskIo, what)
}

/// The record of a machine: the assignment of its configuration, if it was given one that names it.
fn record(old: ImportedMachine) -> Machine {
    let assigned = old.configuration.clone().filter(|name| !is_fallback(name));
    Machine {
        id: old.id,
        assigned,
        state: old.state,
        permission: old.permission,
        configuration: old.configuration,
        first_seen: old.first_seen,
        last_seen: old.last_seen,
        since: old.since,
        ..Machine::stranger(old.identity, old.first_seen)
    }
}

/// Merges machines with the same configuration: the one whose record forbids more is kept and gets the others' cards.
fn merged(machines: impl Iterator<Item = Machine>) -> Vec<Machine> {
    let mut assigned: BTreeMap<String, Machine> = BTreeMap::new();
    let mut others = Vec::new();
    for machine in machines {
        let Some(name) = machine.assigned.clone() else {
            others.push(machine);
            continue;
        };
        let merged = match assigned.remove(&name) {
            None => machine,
            Some(known) => {
                let caution = |machine: &Machine| {
                    (machine.permission == InstallPermission::Denied, machine.state.is_taken())
                };
                let (mut kept, other) =
                    if caution(&machine) > caution(&known) { (machine, known) } else { (known, machine) };
                if other.state.is_taken() && !kept.state.is_taken() {
                    (kept.state, kept.since) = (other.state, other.since);
                }
                for mac in other.identity.macs {
                    kept.learn(mac);
                }
                kept
            }
        };
        assigned.insert(name, merged);
    }
    others.extend(assigned.into_values());
    others
}

#[cfg(test)]
mod tests;
