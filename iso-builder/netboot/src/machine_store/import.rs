//! What earlier versions of this program kept: one JSON file with all machines, `machines.json`. It is taken over once,
//! whatever its size, and renamed.
//!
//! Tokens are not taken over: a machine that is being installed just then reports no more, and one that was told to boot
//! and has not taken its configuration has to be started again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Result, anyhow};
use base::failure::{Class, Classify};
use model::machine::Identity;
use serde::Deserialize;

use super::unreadable::unreadable;
use super::{Durability, MachineStore};
use crate::machine::{DeploymentState, InstallPermission, Machine};
use crate::machine_id::MachineId;
use crate::moment::Moment;

/// The name of the file...
const NAME: &str = "machines.json";
/// ...and after it was taken over.
const MIGRATED: &str = "machines.json.migrated";
/// The version of the file's format.
const FORMAT: u32 = 1;

/// The file's content.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    machines: Vec<Old>,
}

/// A machine as it was kept.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Old {
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

/// Whether a configuration of this name was the fallback, which names no machine.
fn is_fallback(name: &str) -> bool {
    matches!(name, "default.yaml" | "default.yml")
}

/// Takes over what is in `directory`, if there is something.
pub(super) fn run(directory: &Path, store: &dyn MachineStore) -> Result<()> {
    let path = directory.join(NAME);
    let what = || format!("taking over {}", path.display());
    if !fs::exists(&path).class(Class::DiskIo, what)? {
        return Ok(());
    }
    let bytes = fs::read(&path).class(Class::DiskIo, what)?;
    let content: Content = serde_json::from_slice(&bytes).map_err(|error| unreadable(&path, error.into()))?;
    if content.format != FORMAT {
        let why = anyhow!("it has format {}, and this program reads format {FORMAT}", content.format);
        return Err(unreadable(&path, why));
    }
    let machines = merged(content.machines.into_iter().map(record));
    // Where the server ends before the file is renamed, it is taken over again: those that are there already stay.
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

/// The record of a machine: that of its configuration, where it was given one that names it.
fn record(old: Old) -> Machine {
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

/// Of several machines with one configuration that one counts from which it must be kept most: the others' cards are its
/// own.
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
