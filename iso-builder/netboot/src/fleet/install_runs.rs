//! The latest run of each machine, as the store keeps it: a report is applied to what earlier reports have made of the run,
//! whichever server got them.

use anyhow::{Context, Result};
use model::fleet::{ReportLine, StreamHeader};

use super::install_run::InstallRun;
use crate::machines::id::MachineId;
use crate::machines::registry::MachineRegistry;
use crate::machines::store::RunRecord;
use crate::moment::Moment;

/// The effect of a report.
#[derive(Clone, Debug)]
pub struct ReceivedReport {
    /// The run before the report; none if it is the first one of the machine.
    pub before: Option<InstallRun>,
    pub run: InstallRun,
    /// Whether the report begins the run.
    pub is_first: bool,
}

/// Reads a run from its record.
pub fn read(record: &RunRecord) -> Result<InstallRun> {
    let mut run: InstallRun =
        serde_json::from_str(&record.run).context("reading the reports of a machine")?;
    run.has_log = record.has_log;
    Ok(run)
}

/// Applies lines that [`super::install_run::read`] has checked. `has_taken` says whether the reporter has taken the
/// configuration: what another one reported before is not part of its run.
pub fn receive(
    registry: &MachineRegistry,
    id: MachineId,
    has_taken: bool,
    (hello, lines): (&StreamHeader, &[ReportLine]),
    now: Moment,
) -> Result<ReceivedReport> {
    let log =
        lines.iter().rev().find_map(|line| if let ReportLine::Log(log) = line { Some(&**log) } else { None });
    registry.change_run(id, log, now, |record| {
        let before = record.as_ref().map(read).transpose()?;
        let same = |run: &&InstallRun| run.id == hello.run && run.has_taken == has_taken;
        let known = before.as_ref().filter(same).cloned();
        let is_first = known.is_none();
        let mut run = known.unwrap_or_else(|| InstallRun::new(hello.run, has_taken, now));
        run.receive(hello, lines, now);
        let heard = if has_taken { Some(now) } else { record.and_then(|record| record.heard) };
        let text = serde_json::to_string(&run).context("writing the reports of a machine")?;
        let record = RunRecord { run: text, heard, has_log: run.has_log };
        Ok((record, ReceivedReport { before, run, is_first }))
    })
}
