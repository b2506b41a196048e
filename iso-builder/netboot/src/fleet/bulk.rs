//! Actions on several machines: what an operator asks for, the plan that is to be confirmed, and what came of it.
//!
//! Nothing is done before a second request. It names each machine with what the operator has seen of it, so that a machine that
//! has changed since, or that only matches the filter now, is left alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use base::digest::Digest;
use schemars::JsonSchema;
use serde::Serialize;

use super::filter::{InvalidQuery, MachineFilter, pairs};
use super::listing;
use super::query::MachineOrder;
use super::stage::MachineStage;
use super::view::{FleetView, MachineRow};
use crate::machines::id::MachineId;
use crate::machines::machine::{DeploymentState, InstallPermission, MachineVersion, OperatorAction};
use crate::machines::registry::{ActedMachine, ActionResult, ActionTarget};

/// The path to which a request for a plan is sent.
pub const PLAN: &str = "/fleet/actions";
/// The path to which its confirmation is sent.
pub const CONFIRM: &str = "/fleet/actions/confirm";
/// The longest body of both, in bytes.
pub const BODY: usize = 2 << 20;
/// The most machines of one action: so many confirmed ones fit into a body.
const MOST: usize = 40_000;
/// The machines of one transaction: while it runs, machines that boot wait.
pub const BATCH: usize = 200;

/// An action on several machines, which nobody has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkRequest {
    pub action: OperatorAction,
    pub choice: MachineChoice,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineChoice {
    These(Vec<MachineId>),
    Matching(MachineFilter),
}

/// The machines that an operator has confirmed, each with what was seen of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkConfirmation {
    pub action: OperatorAction,
    seen: Vec<(MachineId, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBulk {
    #[error("{0} is not an action; there are {known}", known = OperatorAction::ALL.map(OperatorAction::name).join(", "))]
    Action(String),
    #[error("{0} is not a value of `of`; there are chosen and matching")]
    Choice(String),
    #[error("no machine was chosen")]
    Nothing,
    #[error(transparent)]
    Query(#[from] InvalidQuery),
    #[error("the list of confirmed machines is damaged")]
    Confirmed,
    #[error("{count} machines are to be redeployed, and {given} was confirmed as their number")]
    Count { count: usize, given: String },
    #[error("{0} machines are more than one action can have, {MOST}; use a narrower filter")]
    TooMany(usize),
}

/// An action as it would be carried out now.
#[derive(Clone, Debug)]
pub struct BulkPlan<'a> {
    pub action: OperatorAction,
    /// The machines that it would be carried out on, by name.
    pub machines: Vec<&'a MachineRow>,
    pub refused: Vec<RefusedMachine>,
    /// The clusters that a redeployment takes machines from.
    pub clusters: Vec<AffectedCluster>,
}

/// A machine on which nothing is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RefusedMachine {
    pub id: String,
    pub name: String,
    pub reason: String,
}

/// A cluster of which machines are redeployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AffectedCluster {
    pub cluster: String,
    /// How many of its machines are redeployed.
    pub machines: usize,
    /// How many machines of it are in the fleet.
    pub of: usize,
}

/// What came of a confirmed action.
#[derive(Clone, Debug)]
pub struct BulkOutcome {
    pub action: OperatorAction,
    pub done: Vec<DoneMachine>,
    pub refused: Vec<RefusedMachine>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DoneMachine {
    pub id: String,
    pub name: String,
    /// `done`, or `removed` if the entry is gone.
    pub result: &'static str,
}

/// A confirmed machine that is as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmedMachine {
    pub name: String,
    pub target: ActionTarget,
}

impl BulkRequest {
    /// Reads a form.
    pub fn of(form: &str) -> Result<Self, InvalidBulk> {
        let fields = pairs(form)?;
        let field = |name: &str| fields.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str());
        let action = action(field("action"))?;
        let choice = match field("of").unwrap_or("chosen") {
            "matching" => MachineChoice::Matching(MachineFilter::of(field("query").unwrap_or_default())?),
            "chosen" => {
                let ids = fields.iter().filter(|(key, _)| *key == "machine");
                let ids = ids.map(|(_, id)| id.parse().map_err(|_| InvalidQuery::Machine(id.clone())));
                MachineChoice::These(ids.collect::<Result<_, _>>()?)
            }
            other => return Err(InvalidBulk::Choice(other.to_owned())),
        };
        if choice == MachineChoice::These(Vec::new()) {
            return Err(InvalidBulk::Nothing);
        }
        Ok(Self { action, choice })
    }
}

impl<'a> BulkPlan<'a> {
    pub fn new(request: &BulkRequest, view: &'a FleetView) -> Result<Self, InvalidBulk> {
        let action = request.action;
        let (mut chosen, mut refused) = (Vec::new(), Vec::new());
        match &request.choice {
            MachineChoice::Matching(filter) => chosen = listing::matching(&view.machines, filter),
            MachineChoice::These(ids) => {
                let known = by_id(view);
                let mut seen = HashSet::new();
                for id in ids.iter().map(ToString::to_string).filter(|id| seen.insert(id.clone())) {
                    match known.get(id.as_str()) {
                        Some(row) => chosen.push(*row),
                        None => refused.push(gone(id)),
                    }
                }
            }
        }
        if chosen.is_empty() && refused.is_empty() {
            return Err(InvalidBulk::Nothing);
        }
        if chosen.len() > MOST {
            return Err(InvalidBulk::TooMany(chosen.len()));
        }
        chosen.sort_by(|one, other| listing::compare(one, other, MachineOrder::Name));
        let (machines, others): (Vec<_>, Vec<_>) =
            chosen.into_iter().partition(|row| row.actions.contains(&action));
        refused.extend(others.into_iter().map(|row| refusal(row, reason(row, action).to_owned())));
        let clusters = match action {
            OperatorAction::Redeploy => affected(&machines, view),
            _ => Vec::new(),
        };
        Ok(Self { action, machines, refused, clusters })
    }

    /// The machines with what is seen of them, for the confirmation.
    #[must_use]
    pub fn seen(&self) -> String {
        let seen = self.machines.iter().map(|row| format!("{}.{}", row.id, stamp(row)));
        seen.collect::<Vec<_>>().join(" ")
    }

    /// Whether the number of machines has to be confirmed, too: a wrong click must not erase a fleet.
    #[must_use]
    pub fn asks_for_count(&self) -> bool {
        asks_for_count(self.action, self.machines.len())
    }
}

impl BulkConfirmation {
    /// Reads a form.
    pub fn of(form: &str) -> Result<Self, InvalidBulk> {
        let fields = pairs(form)?;
        let field = |name: &str| fields.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str());
        let action = action(field("action"))?;
        let mut known = HashSet::new();
        let mut seen = Vec::new();
        for word in field("seen").unwrap_or_default().split_whitespace() {
            let (id, stamp) = word.split_once('.').ok_or(InvalidBulk::Confirmed)?;
            let id = id.parse().map_err(|_| InvalidBulk::Confirmed)?;
            if known.insert(id) {
                seen.push((id, stamp.to_owned()));
            }
        }
        let count = seen.len();
        let given = field("count").unwrap_or("nothing");
        match count {
            0 => Err(InvalidBulk::Nothing),
            _ if asks_for_count(action, count) && given.trim() != count.to_string() => {
                Err(InvalidBulk::Count { count, given: given.to_owned() })
            }
            _ => Ok(Self { action, seen }),
        }
    }

    /// The machines that still are as they were seen, and those that are not.
    #[must_use]
    pub fn judge(&self, view: &FleetView) -> (Vec<ConfirmedMachine>, Vec<RefusedMachine>) {
        let known = by_id(view);
        let (mut machines, mut refused) = (Vec::new(), Vec::new());
        for (id, seen) in &self.seen {
            let Some(row) = known.get(id.to_string().as_str()) else {
                refused.push(gone(id.to_string()));
                continue;
            };
            if stamp(row) != *seen {
                refused.push(refusal(row, changed(row.stage)));
            } else if !row.actions.contains(&self.action) {
                refused.push(refusal(row, reason(row, self.action).to_owned()));
            } else {
                let target = ActionTarget { id: *id, seen: Some(row.version) };
                machines.push(ConfirmedMachine { name: row.name.clone(), target });
            }
        }
        (machines, refused)
    }
}

impl BulkOutcome {
    #[must_use]
    pub fn new(action: OperatorAction, refused: Vec<RefusedMachine>) -> Self {
        Self { action, done: Vec::new(), refused }
    }

    /// Adds the results of one transaction; none if it failed.
    pub fn add(&mut self, batch: &[ConfirmedMachine], acted: Option<Vec<ActedMachine>>) {
        let results = match acted {
            Some(acted) => acted.into_iter().map(|acted| Some(acted.result)).collect(),
            None => vec![None; batch.len()],
        };
        for (machine, result) in batch.iter().zip(results) {
            let (id, name) = (machine.target.id.to_string(), machine.name.clone());
            let reason = match result {
                Some(ActionResult::Done) => {
                    self.done.push(DoneMachine { id, name, result: "done" });
                    continue;
                }
                Some(ActionResult::Removed) => {
                    self.done.push(DoneMachine { id, name, result: "removed" });
                    continue;
                }
                Some(ActionResult::Absent) => GONE,
                Some(ActionResult::Changed) => "it has changed since it was shown",
                Some(ActionResult::Refused) => "its state does not allow it",
                None => "the state could not be stored; see whether it was done before you repeat it",
            };
            self.refused.push(RefusedMachine { id, name, reason: reason.to_owned() });
        }
    }
}

/// Refused machines by reason, for the page.
#[must_use]
pub fn by_reason(refused: &[RefusedMachine]) -> BTreeMap<&str, Vec<&RefusedMachine>> {
    let mut reasons: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for machine in refused {
        reasons.entry(machine.reason.as_str()).or_default().push(machine);
    }
    reasons
}

const GONE: &str = "it is not in the fleet any more";

fn asks_for_count(action: OperatorAction, count: usize) -> bool {
    action == OperatorAction::Redeploy && count > 1
}

fn action(word: Option<&str>) -> Result<OperatorAction, InvalidBulk> {
    let word = word.unwrap_or_default();
    OperatorAction::of_name(word).ok_or_else(|| InvalidBulk::Action(word.to_owned()))
}

fn by_id(view: &FleetView) -> HashMap<&str, &MachineRow> {
    view.machines.iter().map(|row| (row.id.as_str(), &**row)).collect()
}

/// What an operator sees of a machine, as 16 hexadecimal digits: its stage, and what was decided about it.
fn stamp(row: &MachineRow) -> String {
    let MachineVersion { state, permission, generation } = row.version;
    let text = format!("{}\n{state:?}\n{permission:?}\n{generation}", row.stage.name());
    Digest::of(text.as_bytes()).to_string().chars().take(16).collect()
}

fn refusal(row: &MachineRow, reason: String) -> RefusedMachine {
    RefusedMachine { id: row.id.clone(), name: row.name.clone(), reason }
}

fn gone(id: String) -> RefusedMachine {
    RefusedMachine { name: id.clone(), id, reason: GONE.to_owned() }
}

fn changed(stage: MachineStage) -> String {
    format!("it has changed since it was shown: {}", stage.text().to_lowercase())
}

/// Why an action is not offered for a machine.
fn reason(row: &MachineRow, action: OperatorAction) -> &'static str {
    let MachineVersion { state, permission, .. } = row.version;
    let denied = permission == InstallPermission::Denied;
    let begun = state.is_taken() || state == DeploymentState::WaitingForCluster;
    match action {
        OperatorAction::Allow if row.stage == MachineStage::Unknown => "there is no configuration for it",
        OperatorAction::Allow => "it is not denied",
        OperatorAction::Deny | OperatorAction::Redeploy | OperatorAction::Forget if denied => "it is denied",
        OperatorAction::Deny if begun => "its install has begun",
        OperatorAction::Redeploy if begun => "its install is under way",
        OperatorAction::Redeploy => "nothing is installed on it by this server",
        OperatorAction::Deny => "it cannot be denied",
        OperatorAction::Forget if begun => "it has taken its configuration",
        OperatorAction::Forget => "a configuration names it",
    }
}

fn affected(machines: &[&MachineRow], view: &FleetView) -> Vec<AffectedCluster> {
    let mut clusters: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for cluster in machines.iter().filter_map(|row| row.cluster.as_deref()) {
        clusters.entry(cluster).or_default().0 += 1;
    }
    for cluster in view.machines.iter().filter_map(|row| row.cluster.as_deref()) {
        clusters.entry(cluster).and_modify(|(_, of)| *of += 1);
    }
    let affected = clusters.into_iter();
    affected
        .map(|(cluster, (machines, of))| AffectedCluster { cluster: cluster.to_owned(), machines, of })
        .collect()
}
