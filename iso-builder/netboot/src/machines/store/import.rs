//! Imports what earlier versions of this program kept: one JSON file with all machines, `machines.json`. It is imported
//! once, whatever its size, and renamed.
//!
//! Tokens are not imported: a machine that is being installed at that time reports no more, and one that was told to boot and
//! has not taken its configuration has to be booted again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Result, anyhow};
use base::failure::{Class, Classify};
use model::machine::Identity;
use serde::Deserialize;

use super::unreadable::unreadable;
use super::{Durability, MachineStore};
use crate::machines::id::MachineId;
use crate::machines::machine::{DeploymentState, InstallPermission, Machine};
use crate::moment::Moment;

const NAME: &str = "machines.json";
/// The file's name after the import.
const MIGRATED: &str = "machines.json.migrated";
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

/// Imports the file in `directory`, if there is one.
pub(super) fn run(directory: &Path, store: &dyn MachineStore) -> Result<()> {
    let path = directory.join(NAME);
    let what = || format!("importing {}", path.display());
    if !fs::exists(&path).class(Class::DiskIo, what)? {
        return Ok(());
    }
    let bytes = fs::read(&path).class(Class::DiskIo, what)?;
    let content: MachinesFile =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(&path, error.into()))?;
    if content.format != FORMAT {
        let why = anyhow!("it has format {}, and this program reads format {FORMAT}", content.format);
        return Err(unreadable(&path, why));
    }
    let machines = merged(content.machines.into_iter().map(record));
    // If the server ends before the file is renamed, it is imported again: existing records are kept.
    store.change(Durability::Full, |records| {
        for machine in machines {
            let assigned = machine.assigned.as_deref().map(|name| records.assigned(name)).transpose()?;
            if records.get(machine.id)?.is_none() && assigned.flatten().is_none() {
                records.put(&machine)?;
            }
        }
        Ok(())
    })?;
    fs::rename(&path, directory.join(MIGRATED)).class(Class::DiskIo, what)?;
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
