//! The state of one run of the installer: a pure fold of the lines that it reports.

use std::collections::VecDeque;
use std::time::Duration;

use base::failure::Class;
use base::progress::{self, Event, measure};
use jiff::Timestamp;
use model::fleet::{self, NodeReport, ReportLine, RunFailure, StreamHeader, UpdateReport};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::stage::MachineStage;
use crate::moment::Moment;

/// The longest log, in bytes.
pub const LOG: usize = 256 << 10;
/// The most slots that a node has.
const SLOTS: usize = 8;
/// The most warnings of a node about the origin of its releases.
const WARNINGS: usize = 8;
/// The most steps that are kept of a run; an install has about twenty.
const STEPS: usize = 64;
/// The number of byte counts from which the rate is computed.
const COUNTS: usize = 12;
/// The largest count of bytes that is believed; no disk is larger.
const MOST: u64 = 1 << 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReport {
    #[error("it is not a report of version 1")]
    Format,
    #[error("a text in it is too long or has control characters")]
    Text,
    #[error("a number in it is out of range")]
    Number,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallStep {
    /// The step's stable name.
    pub id: String,
    pub message: String,
    pub state: progress::StepState,
    /// When it began, by the server's clock.
    pub since: Moment,
    /// When it ended, by the server's clock.
    pub until: Option<Moment>,
}

/// The progress of the present step, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepProgress {
    /// The stable name of the step.
    pub step: String,
    pub bytes: u64,
    pub total: u64,
    /// The latest counts: milliseconds by the machine's clock, and bytes.
    counts: VecDeque<(i64, u64)>,
}

/// One run of the installer, and the joining of its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstallRun {
    pub id: Uuid,
    /// True if the reporter has taken the configuration.
    pub has_taken: bool,
    pub hostname: Option<String>,
    /// The name and version of the system that is installed.
    pub product: Option<String>,
    pub stage: MachineStage,
    /// When the stage began, by the server's clock.
    pub since: Moment,
    /// By the server's clock.
    pub last_report: Moment,
    pub steps: Vec<InstallStep>,
    /// While a step whose length is known runs.
    pub work: Option<StepProgress>,
    pub message: String,
    pub failure: Option<RunFailure>,
    /// How the updates of the node stand, once it has told.
    pub update: Option<UpdateReport>,
    /// Whether it has sent its log, which is kept apart.
    #[serde(skip)]
    pub has_log: bool,
    /// The exit code, once the run has ended.
    pub ended: Option<u8>,
    /// The sequence number of the last event.
    seq: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    Installed,
    /// The node is ready in its cluster.
    Joined,
    Failed,
}

/// Parses and checks the lines of a report. Lines of an unknown kind are ignored: a newer installer may send more.
pub fn read(body: &[u8]) -> Result<(StreamHeader, Vec<ReportLine>), InvalidReport> {
    let text = std::str::from_utf8(body).map_err(|_| InvalidReport::Text)?;
    let mut lines = text.lines();
    let Some(ReportLine::Hello(hello)) = lines.next().and_then(|line| serde_json::from_str(line).ok()) else {
        return Err(InvalidReport::Format);
    };
    if hello.v != fleet::VERSION {
        return Err(InvalidReport::Format);
    }
    [&hello.hostname, &hello.product].into_iter().flatten().try_for_each(|text| short(text, 256))?;
    let mut found = Vec::new();
    for line in lines {
        let value: serde_json::Value = serde_json::from_str(line).map_err(|_| InvalidReport::Format)?;
        let known = ["event", "failure", "log", "node", "update", "wait"]
            .iter()
            .any(|kind| value.get(kind).is_some());
        if known {
            let line = serde_json::from_value(value).map_err(|_| InvalidReport::Format)?;
            check(&line)?;
            found.push(line);
        }
    }
    Ok((hello, found))
}

fn check(line: &ReportLine) -> Result<(), InvalidReport> {
    match line {
        ReportLine::Hello(_) => Err(InvalidReport::Format),
        ReportLine::Event(event) => {
            let name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if event.step.is_empty() || event.step.len() > 64 || !event.step.chars().all(name) {
                return Err(InvalidReport::Text);
            }
            time(event).ok_or(InvalidReport::Number)?;
            let large = |count: &Option<u64>| count.is_some_and(|count| count > MOST);
            if event.v != 1 || large(&event.bytes) || large(&event.total) {
                return Err(InvalidReport::Number);
            }
            long(&event.message)
        }
        ReportLine::Failure(RunFailure { causes, hints, .. }) => {
            if causes.len() > 64 || hints.len() > 64 {
                return Err(InvalidReport::Number);
            }
            causes.iter().chain(hints).try_for_each(|text| long(text))
        }
        ReportLine::Node(NodeReport { stage, detail, next, .. }) => {
            short(stage, 64)?;
            [Some(detail), next.as_ref()].into_iter().flatten().try_for_each(|text| long(text))
        }
        ReportLine::Update(UpdateReport {
            state, running, slots, offered, reason, trust, warnings, ..
        }) => {
            if slots.len() > SLOTS || warnings.len() > WARNINGS {
                return Err(InvalidReport::Number);
            }
            let texts = slots.iter().flat_map(|slot| {
                [Some(&slot.slot), slot.state.as_ref(), slot.version.as_ref()].into_iter().flatten()
            });
            texts.chain([state, running]).chain(offered).try_for_each(|text| short(text, 256))?;
            reason.iter().chain(trust).chain(warnings).try_for_each(|text| long(text))
        }
        ReportLine::Log(log) if log.len() > LOG => Err(InvalidReport::Text),
        ReportLine::Log(_) | ReportLine::Wait {} => Ok(()),
    }
}

fn long(text: &str) -> Result<(), InvalidReport> {
    let strange = |c: char| c.is_control() && !"\n\r\t".contains(c);
    if text.len() > fleet::MESSAGE || text.chars().any(strange) { Err(InvalidReport::Text) } else { Ok(()) }
}

fn short(text: &str, limit: usize) -> Result<(), InvalidReport> {
    if text.len() > limit || text.chars().any(char::is_control) { Err(InvalidReport::Text) } else { Ok(()) }
}

/// The time of an event in milliseconds, by the machine's clock.
fn time(event: &Event) -> Option<i64> {
    event.time.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

impl InstallRun {
    /// A run of which nothing has been reported.
    #[must_use]
    pub fn new(id: Uuid, has_taken: bool, now: Moment) -> Self {
        Self {
            id,
            has_taken,
            hostname: None,
            product: None,
            stage: MachineStage::Preparing,
            since: now,
            last_report: now,
            steps: Vec::new(),
            work: None,
            message: String::new(),
            failure: None,
            update: None,
            has_log: false,
            ended: None,
            seq: 0,
        }
    }

    /// Applies the checked lines of one report. Events that were applied before change nothing.
    pub fn receive(&mut self, hello: &StreamHeader, lines: &[ReportLine], now: Moment) {
        self.last_report = now;
        self.hostname = hello.hostname.clone().or(self.hostname.take());
        self.product = hello.product.clone().or(self.product.take());
        for line in lines {
            match line {
                ReportLine::Event(event) if event.seq > self.seq => {
                    self.seq = event.seq;
                    self.event(event, now);
                }
                ReportLine::Failure(failed) => self.failure = Some(failed.clone()),
                ReportLine::Log(log) => self.has_log = !log.is_empty(),
                ReportLine::Node(node) => self.node(node, now),
                ReportLine::Update(update) => self.update(update, now),
                // A server that was started again has missed the begin of the wait.
                ReportLine::Wait {} if self.stage == MachineStage::Preparing => {
                    self.enter(MachineStage::WaitingForCluster, now);
                }
                ReportLine::Wait {} | ReportLine::Hello(_) | ReportLine::Event(_) => {}
            }
        }
    }

    fn event(&mut self, event: &Event, now: Moment) {
        if let Some(code) = event.exit_code.filter(|_| event.step == "run") {
            self.ended = Some(code);
            self.enter(if code == 0 { MachineStage::Rebooting } else { MachineStage::Failed }, now);
            self.work = None;
            return;
        }
        if !event.message.is_empty() {
            self.message.clone_from(&event.message);
        }
        match event.state {
            progress::StepState::Started => self.begin(event, now),
            progress::StepState::Progress => {
                // A server that was started again has missed the begin of the step.
                if let (MachineStage::Preparing, Some(stage)) =
                    (self.stage, MachineStage::of_step(&event.step))
                {
                    self.enter(stage, now);
                }
                self.count(event);
            }
            progress::StepState::Done | progress::StepState::Failed => self.end(event, now),
        }
    }

    /// Applies a report of the installed node, even if the end of its install was never reported.
    fn node(&mut self, node: &NodeReport, now: Moment) {
        (self.ended, self.work) = (Some(0), None);
        self.message = format!("{}: {}", node.stage, node.detail);
        self.failure = node.failed.then(|| RunFailure {
            causes: vec![self.message.clone()],
            hints: node.next.iter().cloned().collect(),
            exit_code: Class::Join.exit_code(),
        });
        let stage = match node {
            NodeReport { ready: true, .. } => MachineStage::Joined,
            NodeReport { failed: true, .. } => MachineStage::NotJoined,
            _ => MachineStage::Joining,
        };
        self.enter(stage, now);
    }

    /// Applies a report of an installed node, even if nothing of its install is known: the server may have been started anew.
    fn update(&mut self, update: &UpdateReport, now: Moment) {
        (self.ended, self.work) = (Some(0), None);
        self.update = Some(update.clone());
        if update.is_rolled_back() {
            let offered = update.offered.as_deref().unwrap_or("a release");
            let what = format!("the update to {offered} was taken back; the release before runs");
            self.failure = Some(RunFailure {
                causes: [Some(what), update.reason.clone()].into_iter().flatten().collect(),
                hints: vec!["Update to another release; this one is not tried again by itself.".into()],
                exit_code: Class::RolledBack.exit_code(),
            });
            self.enter(MachineStage::UpdateRolledBack, now);
        } else if matches!(self.stage, MachineStage::UpdateRolledBack | MachineStage::Preparing) {
            self.failure = None;
            self.enter(MachineStage::Installed, now);
        }
    }

    /// None while the run goes on.
    #[must_use]
    pub fn outcome(&self) -> Option<RunOutcome> {
        match (self.ended?, self.stage) {
            (0, MachineStage::Joined) => Some(RunOutcome::Joined),
            (0, _) => Some(RunOutcome::Installed),
            _ => Some(RunOutcome::Failed),
        }
    }

    fn enter(&mut self, stage: MachineStage, now: Moment) {
        if stage != self.stage {
            (self.stage, self.since) = (stage, now);
        }
    }

    fn begin(&mut self, event: &Event, now: Moment) {
        if let Some(stage) = MachineStage::of_step(&event.step) {
            self.enter(stage, now);
        }
        let waits =
            |step: &&mut InstallStep| step.id == event.step && self.stage == MachineStage::WaitingForCluster;
        if let Some(step) = self.steps.last_mut().filter(waits) {
            // The same wait for another reason. A long one would leave no room for other steps.
            (step.message, step.state, step.until) = (event.message.clone(), event.state, None);
        } else if self.steps.len() < STEPS {
            let (id, message) = (event.step.clone(), event.message.clone());
            self.steps.push(InstallStep { id, message, state: event.state, since: now, until: None });
        }
        self.work = event.total.map(|total| StepProgress {
            step: event.step.clone(),
            total,
            ..StepProgress::default()
        });
        self.count(event);
    }

    fn count(&mut self, event: &Event) {
        let work = self.work.as_mut().filter(|work| work.step == event.step);
        let (Some(work), Some(bytes), Some(time)) = (work, event.bytes, time(event)) else { return };
        work.total = event.total.unwrap_or(work.total);
        work.bytes = bytes.min(work.total);
        work.counts.push_back((time, work.bytes));
        if work.counts.len() > COUNTS {
            work.counts.pop_front();
        }
    }

    fn end(&mut self, event: &Event, now: Moment) {
        let open = |step: &&mut InstallStep| step.id == event.step && step.until.is_none();
        if let Some(step) = self.steps.iter_mut().rev().find(open) {
            (step.state, step.until) = (event.state, Some(now));
        }
        if self.work.as_ref().is_some_and(|work| work.step == event.step) {
            self.work = None;
        }
    }
}

impl StepProgress {
    /// From 0 to 100.
    #[must_use]
    pub fn percent(&self) -> u8 {
        u8::try_from(measure::percent(self.bytes, self.total)).unwrap_or(100)
    }

    /// Bytes per second over the latest counts; none before there are two.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        let ((from, first), (to, last)) = (self.counts.front()?, self.counts.back()?);
        let elapsed = Duration::from_millis(u64::try_from(to.checked_sub(*from)?).ok()?);
        measure::per_second(last.checked_sub(*first)?, elapsed).filter(|rate| *rate > 0)
    }

    /// Seconds that remain at that rate.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        self.total.checked_sub(self.bytes)?.checked_div(self.rate()?)
    }
}

#[cfg(test)]
pub(crate) mod tests;
