//! Conversion between records and rows.

use anyhow::{Context, Result};
use rusqlite::Row;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::conflict::IdentityConflict;
use crate::machines::id::MachineId;
use crate::machines::machine::{DeploymentState, InstallPermission, Machine};
use crate::moment::Moment;

/// The order in which an operator has to look at records; 0 is first.
pub(super) fn attention(machine: &Machine) -> u8 {
    match (machine.state, machine.permission) {
        (DeploymentState::Failed, _) => 0,
        (DeploymentState::Installing | DeploymentState::WaitingForCluster, _) => 1,
        (DeploymentState::Installed | DeploymentState::Joined, _) => 4,
        (_, InstallPermission::Denied) => 5,
        (DeploymentState::Booting, _) => 1,
        (DeploymentState::Waiting, _) if machine.assigned.is_none() => 2,
        (DeploymentState::Waiting | DeploymentState::Redeploy, _) => 3,
    }
}

pub(super) fn machine(row: &Row<'_>) -> Result<Machine> {
    let moment = |column| row.get(column).map(|seconds: i64| Moment(seconds.unsigned_abs()));
    Ok(Machine {
        id: MachineId::of(Uuid::from_bytes(row.get(0)?)),
        assigned: row.get(1)?,
        identity: of_json(&row.get::<_, String>(2)?)?,
        state: of_word(row.get(3)?)?,
        permission: of_word(row.get(4)?)?,
        configuration: row.get(5)?,
        first_seen: moment(6)?,
        last_seen: moment(7)?,
        since: moment(8)?,
        generation: row.get(9)?,
        taken: row.get::<_, Option<String>>(10)?.as_deref().map(of_json).transpose()?,
        clients: of_json(&row.get::<_, String>(11)?)?,
    })
}

pub(super) fn conflict(row: &Row<'_>) -> Result<IdentityConflict> {
    let moment = |column| row.get(column).map(|seconds: i64| Moment(seconds.unsigned_abs()));
    Ok(IdentityConflict {
        id: row.get(0)?,
        address: row.get::<_, String>(1)?.parse().context("reading the address of a conflict")?,
        told: row.get(2)?,
        between: of_json(&row.get::<_, String>(3)?)?,
        first: moment(4)?,
        last: moment(5)?,
        times: row.get::<_, i64>(6)?.unsigned_abs(),
    })
}

/// SQLite's integers are signed.
pub(super) fn seconds(moment: Moment) -> i64 {
    i64::try_from(moment.0).unwrap_or(i64::MAX)
}

pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).context("writing a record")
}

fn of_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).context("reading a record of the state")
}

/// A state or a permission as its name in JSON.
pub(super) fn word(value: impl Serialize) -> Result<String> {
    Ok(json(&value)?.trim_matches('"').to_owned())
}

fn of_word<T: DeserializeOwned>(word: String) -> Result<T> {
    serde_json::from_value(word.into()).context("reading a record of the state")
}
