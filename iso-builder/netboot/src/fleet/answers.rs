//! The answers of the API in JSON, beside the [list](super::document) and the [audit log](super::audit).

use schemars::JsonSchema;
use serde::Serialize;

use super::bulk::{AffectedCluster, BulkOutcome, BulkPlan, DoneMachine, RefusedMachine};
use super::stage::MachineStage;
use super::view::{MachineRow, VERSION};
use crate::machines::audit::{AuditAction, AuditResult};
use crate::machines::machine::OperatorAction;

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorAnswer {
    /// Why, and what to do.
    pub error: String,
}

/// An action that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ActionAnswer {
    v: u32,
    action: AuditAction,
    /// The id of the machine, of an action on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    /// The id of the conflict, of an action on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflict: Option<String>,
    result: AuditResult,
}

impl ActionAnswer {
    #[must_use]
    pub fn on_machine(action: OperatorAction, id: String, result: AuditResult) -> Self {
        Self { v: VERSION, action: action.into(), machine: Some(id), conflict: None, result }
    }

    #[must_use]
    pub fn dismissed(conflict: &str) -> Self {
        let (action, result) = (AuditAction::Dismiss, AuditResult::Done);
        Self { v: VERSION, action, machine: None, conflict: Some(conflict.to_owned()), result }
    }
}

/// What an action on several machines would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlanAnswer {
    v: u32,
    action: OperatorAction,
    /// The machines that it would be carried out on.
    machines: Vec<PlannedMachine>,
    /// The machines that it would leave alone.
    refused: Vec<RefusedMachine>,
    /// The clusters that a redeployment takes machines from.
    clusters: Vec<AffectedCluster>,
    /// For the confirmation: the machines with what is seen of them.
    seen: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlannedMachine {
    id: String,
    name: String,
    stage: MachineStage,
    cluster: Option<String>,
    rack: Option<String>,
}

impl From<&MachineRow> for PlannedMachine {
    fn from(row: &MachineRow) -> Self {
        let MachineRow { id, name, stage, cluster, rack, .. } = row.clone();
        Self { id, name, stage, cluster, rack }
    }
}

impl From<&BulkPlan<'_>> for PlanAnswer {
    fn from(plan: &BulkPlan<'_>) -> Self {
        Self {
            v: VERSION,
            action: plan.action,
            machines: plan.machines.iter().map(|row| PlannedMachine::from(*row)).collect(),
            refused: plan.refused.clone(),
            clusters: plan.clusters.clone(),
            seen: plan.seen(),
        }
    }
}

/// What came of an action on several machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OutcomeAnswer {
    v: u32,
    action: OperatorAction,
    done: Vec<DoneMachine>,
    refused: Vec<RefusedMachine>,
}

impl From<BulkOutcome> for OutcomeAnswer {
    fn from(outcome: BulkOutcome) -> Self {
        let BulkOutcome { action, done, refused } = outcome;
        Self { v: VERSION, action, done, refused }
    }
}
