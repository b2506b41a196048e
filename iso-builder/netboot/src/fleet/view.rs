//! The fleet as it is shown: what the page and the JSON of `/v1/fleet` are made of. Times are RFC 3339.

use std::sync::Arc;

use model::fleet::{RunFailure, UpdateReport};
use model::machine::{Identity, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use super::install_run::{InstallRun, InstallStep};
use super::stage::{MachineStage, StageGroup};
use crate::machines::configurations::Configurations;
use crate::machines::machine::{
    BootClient, ConfigurationFit, DeploymentState, InstallPermission, Machine, MachineVersion, OperatorAction,
};
use crate::machines::store::IdentityConflict;
use crate::moment::Moment;

pub const VERSION: u32 = 1;
/// Seconds after which a restarting machine counts as installed.
const RESTART: u64 = 180;
/// Seconds without a report after which an installing machine is shown as silent; machines report every second.
const SILENT: u64 = 120;
/// The same in seconds for a machine that boots, which includes the firmware's memory test.
const START: u64 = 900;

#[derive(Clone, Debug, PartialEq)]
pub struct FleetView {
    /// By the server's clock.
    pub time: String,
    /// The size of each group, without empty ones.
    pub summary: Vec<StageCount>,
    /// Requests whose identifiers belong to more than one machine or configuration, the latest first.
    pub conflicts: Vec<ConflictRow>,
    /// In any order.
    pub machines: Vec<Arc<MachineRow>>,
    /// The hostnames of machines that a configuration names and that have never asked to boot.
    pub not_heard_of: Vec<String>,
    /// Warnings about the server itself.
    pub notices: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConflictRow {
    pub id: String,
    pub address: String,
    /// The identifiers that the client sent.
    pub told: String,
    /// The configurations and machines that the identifiers belong to.
    pub between: Vec<String>,
    pub first: String,
    pub last: String,
    pub times: u64,
    /// The same as `last`, for the page.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClientRow {
    pub address: String,
    /// The identifiers that it sent last.
    pub told: String,
    pub first: String,
    pub last: String,
    pub times: u64,
    /// When it took the configuration, if it did.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StageCount {
    pub group: StageGroup,
    pub count: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MachineRow {
    pub id: String,
    /// Its host name, or else an identifier of its identity.
    pub name: String,
    pub identity: Identity,
    /// The role that its configuration gives its node.
    pub role: Option<String>,
    /// The address of the cluster that its configuration creates or joins.
    pub cluster: Option<String>,
    /// The rack that its configuration names.
    pub rack: Option<String>,
    /// The name of the configuration that it was offered last.
    pub configuration: Option<String>,
    /// The clients that asked to boot as this machine since its last redeployment, the latest last.
    pub clients: Vec<ClientRow>,
    /// The name and version of the system that is installed.
    pub product: Option<String>,
    pub stage: MachineStage,
    pub group: StageGroup,
    pub failed_in: Option<MachineStage>,
    pub since: String,
    /// When it last asked or reported.
    pub seen: String,
    /// True if it has not reported for longer than a running install ever does.
    pub silent: bool,
    pub message: Option<String>,
    pub progress: Option<InstallProgress>,
    pub error: Option<RunFailure>,
    /// How the updates of the node stand, where it has told.
    pub update: Option<UpdateReport>,
    /// The operator's next step.
    pub next: Option<String>,
    pub log: bool,
    pub actions: Vec<OperatorAction>,
    /// What an operator decides by.
    #[serde(skip)]
    pub version: MachineVersion,
    /// `since` and `seen`, for the page.
    #[serde(skip)]
    pub moments: MachineMoments,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMoments {
    pub since: Moment,
    /// When it last asked or reported.
    pub seen: Moment,
    /// From when on the row is another one, though nothing was heard of the machine.
    pub until: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstallProgress {
    /// From 0 to 100.
    pub percent: u8,
    pub bytes: u64,
    pub total: u64,
    /// Bytes per second.
    pub rate: Option<u64>,
    pub seconds_left: Option<u64>,
}

impl FleetView {
    #[must_use]
    pub fn new(machines: Vec<Arc<MachineRow>>, now: Moment) -> Self {
        let mut counts = [0; StageGroup::ALL.len()];
        for row in &machines {
            if let Some(count) = counts.get_mut(row.group.place()) {
                *count += 1;
            }
        }
        let (time, summary, conflicts) = (now.to_string(), StageCount::all(counts), Vec::new());
        let (not_heard_of, notices) = (Vec::new(), Vec::new());
        Self { time, summary, conflicts, machines, not_heard_of, notices }
    }
}

impl StageCount {
    /// The counts of [`StageGroup::ALL`], without empty ones.
    #[must_use]
    pub fn all(counts: [usize; StageGroup::ALL.len()]) -> Vec<Self> {
        let counts = StageGroup::ALL.into_iter().zip(counts).map(|(group, count)| Self { group, count });
        counts.filter(|count| count.count > 0).collect()
    }
}

impl MachineRow {
    /// True if a client that shows one has nothing to change for the other: that a machine was heard of again is no change.
    #[must_use]
    pub fn is_same_but_for_time(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let timeless =
            |row: &Self| Self { seen: String::new(), moments: MachineMoments::default(), ..row.clone() };
        Arc::ptr_eq(self, other) || timeless(self) == timeless(other)
    }

    /// `wait` is what the machine was told too, so that its own words of it are left out.
    pub fn explain_wait(&mut self, wait: String) {
        if let Some(message) = &mut self.message {
            *message = message.replace(&wait, "").trim_end().to_owned();
        }
        self.next = Some(wait);
    }

    /// With role, cluster and rack of its configuration, and the hostname, unless the machine has reported one.
    #[must_use]
    pub fn described_by(
        mut self,
        configurations: &Configurations,
        machine: &Machine,
        run: Option<&InstallRun>,
    ) -> Self {
        let is_told = run.is_some_and(|run| run.hostname.is_some());
        let hostname = machine.assigned.as_deref().and_then(|name| configurations.hostname(name));
        if let Some(hostname) = hostname.filter(|_| !is_told) {
            self.name = hostname.to_owned();
        }
        let name = machine.assigned.as_deref().or(machine.configuration.as_deref());
        self.role = name.and_then(|name| configurations.role(name)).map(|role| role.name().to_owned());
        self.cluster = name.and_then(|name| configurations.cluster(name)).map(str::to_owned);
        self.rack = name.and_then(|name| configurations.rack(name)).map(str::to_owned);
        self
    }
}

/// `fit` says which configuration there is for the machine.
#[must_use]
pub fn row(machine: &Machine, run: Option<&InstallRun>, fit: ConfigurationFit, now: Moment) -> MachineRow {
    let told = run.filter(|run| is_about(run, machine));
    // A machine that waited for its cluster, and has booted since its run said so.
    let boots = run.is_some() && told.is_none() && machine.state == DeploymentState::WaitingForCluster;
    let by_state = || match boots {
        true => MachineStage::Booting,
        false => MachineStage::of_state(machine.state, machine.permission, is_expected(machine, fit)),
    };
    let mut stage = told.map_or_else(by_state, |run| run.stage);
    let since = told.map_or(machine.since, |run| run.since);
    if stage == MachineStage::Rebooting && now >= since.plus(RESTART) {
        stage = MachineStage::Installed;
    }
    if stage == MachineStage::Installed && machine.state == DeploymentState::Joined {
        stage = MachineStage::Joined;
    }
    let seen = told.map_or(machine.last_seen, |run| run.last_report.max(machine.last_seen));
    let retry = match (told, stage) {
        (None, _) | (_, MachineStage::Joining) => START,
        (Some(_), _) => SILENT,
    };
    let group = stage.group();
    let reports = group == StageGroup::Installing && stage != MachineStage::Rebooting;
    let silent = reports && now > seen.plus(retry);
    let until = match stage {
        MachineStage::Rebooting => Some(since.plus(RESTART)),
        _ => (reports && !silent).then(|| seen.plus(retry + 1)),
    };
    MachineRow {
        id: machine.id.to_string(),
        name: name(machine, run),
        identity: machine.identity.clone(),
        role: None,
        cluster: None,
        rack: None,
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
        update: told.and_then(|run| run.update.clone()),
        log: run.is_some_and(|run| run.has_log),
        next: next(machine, stage, fit, silent),
        actions: actions(machine, stage, fit, silent),
        version: machine.version(),
        moments: MachineMoments { since, seen, until },
    }
}

/// True if a run belongs to the present deployment and not to an earlier one.
fn is_about(run: &InstallRun, machine: &Machine) -> bool {
    match machine.state {
        DeploymentState::Installed | DeploymentState::Joined => run.ended == Some(0),
        DeploymentState::Installing => run.ended.is_none(),
        DeploymentState::WaitingForCluster => run.ended.is_none() && run.last_report >= machine.last_seen,
        // It may be retried at the console.
        DeploymentState::Failed => run.ended != Some(0) && run.last_report >= machine.since,
        DeploymentState::Waiting | DeploymentState::Booting | DeploymentState::Redeploy => {
            run.ended.is_none() && run.last_report >= machine.since
        }
    }
}

fn failed_in(run: &InstallRun) -> Option<MachineStage> {
    let failed = |step: &&InstallStep| step.state == base::progress::StepState::Failed;
    let step = run.steps.iter().rev().find(failed).or(run.steps.last())?;
    MachineStage::of_step(&step.id)
}

/// A silent machine has no rate.
fn progress(run: &InstallRun, silent: bool) -> Option<InstallProgress> {
    let work = run.work.as_ref().filter(|work| work.total > 0)?;
    let (percent, rate, seconds_left) = (work.percent(), work.rate(), work.left());
    let (rate, seconds_left) = (rate.filter(|_| !silent), seconds_left.filter(|_| !silent));
    Some(InstallProgress { percent, bytes: work.bytes, total: work.total, rate, seconds_left })
}

/// The host name, or else the asset tag, the serial number, the first card or the UUID.
fn name(machine: &Machine, run: Option<&InstallRun>) -> String {
    let Identity { macs, serial, uuid, asset_tag } = &machine.identity;
    let hostname = run.and_then(|run| run.hostname.clone());
    let card = || macs.first().map(ToString::to_string);
    let name = hostname.or_else(|| asset_tag.clone()).or_else(|| serial.clone()).or_else(card);
    name.or_else(|| uuid.map(|uuid| uuid.to_string())).unwrap_or_else(|| "machine without identifiers".into())
}

/// True if there is a configuration with which it may install.
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
            Some("Its configuration was removed. Forget the machine, or restore the configuration.".into())
        }
        (MachineStage::Unknown, ConfigurationFit::Nothing) => Some(format!(
            "No configuration names this machine. Add one{}, then boot the machine again.",
            own()
        )),
        (MachineStage::Unknown, _) => {
            Some("Allow it, and its next boot installs it with the fallback configuration.".into())
        }
        (MachineStage::Waiting, _) => Some("Boot it from the network to install it.".into()),
        (MachineStage::Failed, _) if machine.state == DeploymentState::Failed => {
            Some("Boot the machine again to retry the install.".into())
        }
        _ if silent => Some(
            "Look at its console. If the install has stopped, redeploy the machine and boot it again.".into(),
        ),
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
    let installing =
        matches!(machine.state, DeploymentState::Installing | DeploymentState::WaitingForCluster);
    let begun = installed || installing;
    // A running install must not be restarted.
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
