//! The fleet as it is shown: what the page and the JSON of `/v1/fleet` are made of. Times are RFC 3339.

use model::fleet::Failed;
use model::machine::{Identity, Selector};
use serde::Serialize;

use super::install_run::{InstallRun, InstallStep};
use super::stage::{MachineStage, StageGroup};
use crate::machine::{
    BootClient, ConfigurationFit, DeploymentState, InstallPermission, Machine, OperatorAction,
};
use crate::machine_store::IdentityConflict;
use crate::moment::Moment;

/// The version of the JSON.
pub const VERSION: u32 = 1;
/// A machine that restarts is taken for installed after so many seconds, and one that has said nothing for so long is
/// said to be silent.
const RESTART: u64 = 180;
/// Installing machines report every second; servers take minutes to start.
const SILENT: u64 = 120;
/// A server takes so many seconds from its boot loader to its installer, memory test of the firmware included.
const START: u64 = 900;

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetView {
    /// [`VERSION`].
    pub v: u32,
    /// Now, by the clock of the server.
    pub time: String,
    /// How many there are of each group, those with none left out.
    pub summary: Vec<StageCount>,
    /// Requests whose marks belong to more than one machine or configuration, the latest first.
    pub conflicts: Vec<ConflictRow>,
    /// The machines, those first that somebody has to look at.
    pub machines: Vec<MachineRow>,
    /// Machines that are not listed.
    pub more: usize,
}

/// A conflict as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConflictRow {
    /// Its name on this server.
    pub id: String,
    /// The address of the client.
    pub address: String,
    /// The marks that the client told.
    pub told: String,
    /// The configurations and machines that the marks belong to.
    pub between: Vec<String>,
    /// When it happened first.
    pub first: String,
    /// When it happened last.
    pub last: String,
    /// How often.
    pub times: u64,
    /// The moment of `last` for the page.
    #[serde(skip)]
    pub seen: Moment,
}

impl From<&IdentityConflict> for ConflictRow {
    fn from(conflict: &IdentityConflict) -> Self {
        let IdentityConflict { id, address, told, between, first, last, times } = conflict.clone();
        let (address, seen) = (address.to_string(), last);
        Self { id, address, told, between, first: first.to_string(), last: last.to_string(), times, seen }
    }
}

/// A client that asked to boot as a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClientRow {
    /// Its address.
    pub address: String,
    /// The marks that it told last.
    pub told: String,
    /// When it asked first.
    pub first: String,
    /// When it asked last.
    pub last: String,
    /// How often.
    pub times: u64,
    /// When it took the configuration.
    pub took: Option<String>,
}

impl From<&BootClient> for ClientRow {
    fn from(client: &BootClient) -> Self {
        let BootClient { address, told, first, last, times, took } = client.clone();
        let took = took.map(|took| took.to_string());
        let (first, last) = (first.to_string(), last.to_string());
        Self { address: address.to_string(), told, first, last, times, took }
    }
}

/// How many machines are in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StageCount {
    /// Which.
    pub group: StageGroup,
    /// How many.
    pub count: usize,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineRow {
    /// Its name on this server.
    pub id: String,
    /// What people call it: its host name, or the best mark that it has.
    pub name: String,
    /// What it is known by.
    pub identity: Identity,
    /// The configuration that it was given last.
    pub configuration: Option<String>,
    /// Who asked to boot as this machine since the last redeployment, the latest last.
    pub clients: Vec<ClientRow>,
    /// What is installed.
    pub product: Option<String>,
    /// Where it is.
    pub stage: MachineStage,
    /// What it counts as.
    pub group: StageGroup,
    /// Where it was when it failed.
    pub failed_in: Option<MachineStage>,
    /// Since when it is there.
    pub since: String,
    /// When it was heard of last.
    pub seen: String,
    /// Whether it has said nothing for longer than an install is silent.
    pub silent: bool,
    /// The latest message.
    pub message: Option<String>,
    /// How much of the present step is done.
    pub progress: Option<InstallProgress>,
    /// Why it failed.
    pub error: Option<Failed>,
    /// What somebody has to do so that it goes on.
    pub next: Option<String>,
    /// Whether there is a log to read.
    pub log: bool,
    /// What somebody can ask for.
    pub actions: Vec<OperatorAction>,
    /// The same moments for the page, in seconds since 1970.
    #[serde(skip)]
    pub moments: MachineMoments,
}

/// Moments of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMoments {
    /// Since when it is in its stage.
    pub since: Moment,
    /// When it was heard of last.
    pub seen: Moment,
}

/// How much of a step is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InstallProgress {
    /// From 0 to 100.
    pub percent: u8,
    /// Bytes done.
    pub bytes: u64,
    /// Bytes to do.
    pub total: u64,
    /// Bytes a second.
    pub rate: Option<u64>,
    /// Seconds that are left at that rate.
    pub seconds_left: Option<u64>,
}

impl FleetView {
    /// The machines with what they have told.
    #[must_use]
    pub fn new<'a>(
        machines: impl Iterator<Item = (&'a Machine, Option<&'a InstallRun>, ConfigurationFit)>,
        now: Moment,
    ) -> Self {
        let mut rows: Vec<_> = machines.map(|(machine, run, fit)| row(machine, run, fit, now)).collect();
        let order = |group| StageGroup::ALL.iter().position(|known| *known == group);
        rows.sort_by(|one, other| {
            let key = |row: &MachineRow| (order(row.group), !row.silent);
            key(one).cmp(&key(other)).then_with(|| (&one.name, &one.id).cmp(&(&other.name, &other.id)))
        });
        let count = |group| StageCount { group, count: rows.iter().filter(|row| row.group == group).count() };
        let summary = StageGroup::ALL.map(count).into_iter().filter(|count| count.count > 0).collect();
        let (v, time, conflicts) = (VERSION, now.to_string(), Vec::new());
        Self { v, time, summary, conflicts, machines: rows, more: 0 }
    }
}

/// One machine as it is shown; `fit` says which configuration there is for it.
#[must_use]
pub fn row(machine: &Machine, run: Option<&InstallRun>, fit: ConfigurationFit, now: Moment) -> MachineRow {
    let told = run.filter(|run| is_about(run, machine));
    let by_state = || MachineStage::of_state(machine.state, machine.permission, is_expected(machine, fit));
    let mut stage = told.map_or_else(by_state, |run| run.stage);
    let since = told.map_or(machine.since, |run| run.since);
    if stage == MachineStage::Rebooting && now >= since.plus(RESTART) {
        stage = MachineStage::Installed;
    }
    let seen = told.map_or(machine.last_seen, |run| run.last_report.max(machine.last_seen));
    let retry = match (told, stage) {
        (None, _) | (_, MachineStage::Joining) => START,
        (Some(_), _) => SILENT,
    };
    let group = stage.group();
    let silent =
        group == StageGroup::Installing && stage != MachineStage::Rebooting && now > seen.plus(retry);
    MachineRow {
        id: machine.id.to_string(),
        name: name(machine, run),
        identity: machine.identity.clone(),
        configuration: machine.configuration.clone(),
        clients: machine.clients.iter().map(ClientRow::from).collect(),
        product: told.and_then(|run| run.product.clone()),
        stage,
        group,
        failed_in: told.filter(|_| stage == MachineStage::Failed).and_then(failed_in),
        since: since.to_string(),
        seen: seen.to_string(),
        silent,
        message: told
            .filter(|_| group == StageGroup::Installing && stage != MachineStage::Rebooting)
            .map(|run| run.message.clone()),
        progress: told.and_then(|run| progress(run, silent)),
        error: told.and_then(|run| run.failure.clone()),
        log: run.is_some_and(|run| !run.log.is_empty()),
        next: next(machine, stage, fit, silent),
        actions: actions(machine, stage, fit, silent),
        moments: MachineMoments { since, seen },
    }
}

/// Whether what was told is about the present deployment, and not about one before it.
fn is_about(run: &InstallRun, machine: &Machine) -> bool {
    match machine.state {
        DeploymentState::Installed | DeploymentState::Joined => run.ended == Some(0),
        DeploymentState::Installing => run.ended.is_none(),
        // It may be tried again at the console.
        DeploymentState::Failed => run.ended != Some(0) && run.last_report >= machine.since,
        DeploymentState::Waiting | DeploymentState::Booting | DeploymentState::Redeploy => {
            run.ended.is_none() && run.last_report >= machine.since
        }
    }
}

/// The stage of the step that failed.
fn failed_in(run: &InstallRun) -> Option<MachineStage> {
    let failed = |step: &&InstallStep| step.state == base::progress::State::Failed;
    let step = run.steps.iter().rev().find(failed).or(run.steps.last())?;
    MachineStage::of_step(&step.id)
}

/// A machine that is silent has no rate.
fn progress(run: &InstallRun, silent: bool) -> Option<InstallProgress> {
    let work = run.work.as_ref().filter(|work| work.total > 0)?;
    let (percent, rate, seconds_left) = (work.percent(), work.rate(), work.left());
    let (rate, seconds_left) = (rate.filter(|_| !silent), seconds_left.filter(|_| !silent));
    Some(InstallProgress { percent, bytes: work.bytes, total: work.total, rate, seconds_left })
}

/// Its host name, or else its serial number, tag or first card.
fn name(machine: &Machine, run: Option<&InstallRun>) -> String {
    let Identity { macs, serial, uuid, asset_tag } = &machine.identity;
    let hostname = run.and_then(|run| run.hostname.clone());
    let card = || macs.first().map(ToString::to_string);
    let name = hostname.or_else(|| asset_tag.clone()).or_else(|| serial.clone()).or_else(card);
    name.or_else(|| uuid.map(|uuid| uuid.to_string())).unwrap_or_else(|| "machine without marks".into())
}

/// Whether it installs when it boots, as far as configurations go.
fn is_expected(machine: &Machine, fit: ConfigurationFit) -> bool {
    fit == ConfigurationFit::Own
        || fit == ConfigurationFit::Fallback && machine.permission == InstallPermission::Allowed
}

fn next(machine: &Machine, stage: MachineStage, fit: ConfigurationFit, silent: bool) -> Option<String> {
    let own = || {
        let Identity { macs, serial, uuid, .. } = &machine.identity;
        let mac = macs.first().map(|mac| Selector::Mac(*mac).stem());
        let serial =
            || format!("serial:{}", serial.as_deref()?).parse().ok().map(|found: Selector| found.stem());
        let file = mac.or_else(serial).or_else(|| uuid.map(|uuid| Selector::Uuid(uuid).stem()));
        file.map_or_else(String::new, |file| format!(" such as {file}.yaml"))
    };
    match (stage, fit) {
        (_, ConfigurationFit::Nothing) if machine.assigned.is_some() && !machine.is_held() => {
            Some("Its configuration is no longer there. Forget it, or bring the configuration back.".into())
        }
        (MachineStage::Unknown, ConfigurationFit::Nothing) => Some(format!(
            "No configuration is for this machine. Add one{}, then start the machine again.",
            own()
        )),
        (MachineStage::Unknown, _) => {
            Some("Allow it to install it with the fallback configuration when it boots next.".into())
        }
        (MachineStage::Waiting, _) => Some("Start it over the network to install it.".into()),
        (MachineStage::Failed, _) if machine.state == DeploymentState::Failed => {
            Some("Start the machine again to try again.".into())
        }
        _ if silent => {
            Some("Look at its console. Where it has stopped, redeploy it and start it again.".into())
        }
        _ => None,
    }
}

fn actions(
    machine: &Machine,
    stage: MachineStage,
    fit: ConfigurationFit,
    silent: bool,
) -> Vec<OperatorAction> {
    let denied = machine.permission == InstallPermission::Denied;
    let installed = matches!(machine.state, DeploymentState::Installed | DeploymentState::Joined);
    let begun = installed || machine.state == DeploymentState::Installing;
    // An install that goes on is not to be begun again.
    let over = installed && stage != MachineStage::Rebooting || silent;
    let fallback = stage == MachineStage::Unknown && fit == ConfigurationFit::Fallback;
    let offered = [
        (OperatorAction::Allow, denied || fallback),
        (OperatorAction::Redeploy, begun && over && !denied),
        (OperatorAction::Deny, !begun && !denied),
        (
            OperatorAction::Forget,
            !begun && !denied && (machine.assigned.is_none() || fit == ConfigurationFit::Nothing),
        ),
    ];
    offered.into_iter().filter(|(_, offered)| *offered).map(|(action, _)| action).collect()
}

#[cfg(test)]
mod tests;
