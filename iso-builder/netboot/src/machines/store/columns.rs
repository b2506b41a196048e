//! Conversion between records and rows.

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::conflict::IdentityConflict;
use super::run::RunRecord;
use super::sql::{FromSqlValue, SqlRow, SqlValue};
use crate::machines::id::MachineId;
use crate::machines::machine::{DeploymentState, InstallPermission, Machine};
use crate::moment::Moment;

/// The order in which an operator has to look at records; 0 is first.
pub(super) fn attention(machine: &Machine) -> u32 {
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

pub(super) fn machine(mut row: SqlRow) -> Result<Machine> {
    Ok(Machine {
        id: id(&mut row)?,
        assigned: row.take()?,
        identity: of_json(&row.take::<String>()?)?,
        state: of_word(row.take()?)?,
        permission: of_word(row.take()?)?,
        configuration: row.take()?,
        first_seen: moment(&mut row)?,
        last_seen: moment(&mut row)?,
        since: moment(&mut row)?,
        generation: row.take()?,
        taken: row.take::<Option<String>>()?.as_deref().map(of_json).transpose()?,
        clients: of_json(&row.take::<String>()?)?,
    })
}

pub(super) fn conflict(mut row: SqlRow) -> Result<IdentityConflict> {
    Ok(IdentityConflict {
        id: row.take()?,
        address: row.take::<String>()?.parse().context("reading the address of a conflict")?,
        told: row.take()?,
        between: of_json(&row.take::<String>()?)?,
        first: moment(&mut row)?,
        last: moment(&mut row)?,
        times: row.take::<i64>()?.unsigned_abs(),
    })
}

pub(super) fn run(mut row: SqlRow) -> Result<(MachineId, RunRecord)> {
    let machine = id(&mut row)?;
    let (run, heard) = (row.take()?, row.take::<Option<i64>>()?);
    let heard = heard.map(|seconds| Moment(seconds.unsigned_abs()));
    Ok((machine, RunRecord { run, heard, has_log: row.take::<Option<i64>>()?.is_some() }))
}

pub(super) fn id(row: &mut SqlRow) -> Result<MachineId> {
    let bytes: Vec<u8> = row.take()?;
    id_of(SqlValue::Bytes(bytes))
}

pub(super) fn id_of(value: SqlValue) -> Result<MachineId> {
    let bytes = Vec::from_sql(value)?;
    Ok(MachineId::of(Uuid::from_slice(&bytes).context("reading the number of a machine")?))
}

pub(super) fn bytes(id: MachineId) -> SqlValue {
    SqlValue::Bytes(id.as_uuid().as_bytes().to_vec())
}

pub(super) fn moment(row: &mut SqlRow) -> Result<Moment> {
    row.take().map(|seconds: i64| Moment(seconds.unsigned_abs()))
}

/// Integers of databases are signed.
pub(super) fn seconds(moment: Moment) -> SqlValue {
    i64::try_from(moment.0).unwrap_or(i64::MAX).into()
}

pub(super) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).context("writing a record")
}

pub(super) fn of_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).context("reading a record of the state")
}

/// A state or a permission as its name in JSON.
pub(super) fn word(value: impl Serialize) -> Result<String> {
    Ok(json(&value)?.trim_matches('"').to_owned())
}

pub(super) fn of_word<T: DeserializeOwned>(word: String) -> Result<T> {
    serde_json::from_value(word.into()).context("reading a record of the state")
}
