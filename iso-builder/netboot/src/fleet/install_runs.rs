//! The latest runs of all machines, within limits of memory.

use std::collections::BTreeMap;

use model::fleet::{ReportLine, StreamHeader};

use crate::machines::id::MachineId;
use crate::moment::Moment;

use super::install_run::{InstallRun, RunOutcome};

/// All logs together, in bytes; beyond it the oldest are dropped.
const LOGS: usize = 32 << 20;
/// The most machines whose runs are kept.
const MOST: usize = 2000;

#[derive(Clone, Debug, Default)]
pub struct InstallRuns {
    runs: BTreeMap<MachineId, InstallRun>,
    /// When a reporter that has taken the configuration of a machine was heard last.
    heard: BTreeMap<MachineId, Moment>,
}

impl InstallRuns {
    #[must_use]
    pub fn get(&self, id: MachineId) -> Option<&InstallRun> {
        self.runs.get(&id)
    }

    /// When a reporter that has taken the configuration of a machine was heard last, since the server started.
    #[must_use]
    pub fn heard(&self, id: MachineId) -> Option<Moment> {
        self.heard.get(&id).copied()
    }

    /// Applies lines that [`super::install_run::read`] has checked. `has_taken` says whether the reporter has taken the
    /// configuration: what another one reported before is not part of its run. Returns whether the run is new, and its
    /// outcome once it is over.
    pub fn receive(
        &mut self,
        id: MachineId,
        has_taken: bool,
        (hello, lines): (&StreamHeader, &[ReportLine]),
        now: Moment,
    ) -> (bool, Option<RunOutcome>) {
        let same = |run: &InstallRun| run.id == hello.run && run.has_taken == has_taken;
        let new = !self.runs.get(&id).is_some_and(same);
        if new {
            let mut run = InstallRun::new(hello.run, now);
            run.has_taken = has_taken;
            self.runs.insert(id, run);
        }
        let Some(run) = self.runs.get_mut(&id) else { return (new, None) };
        run.receive(hello, lines, now);
        if has_taken {
            self.heard.insert(id, now);
        }
        let outcome = run.outcome();
        self.make_room(id);
        (new, outcome)
    }

    /// Drops the oldest runs and logs beyond the limits, but never those of `keep`.
    fn make_room(&mut self, keep: MachineId) {
        let others = |run: &(&MachineId, &InstallRun)| *run.0 != keep;
        while self.heard.len() > MOST {
            let oldest = self.heard.iter().min_by_key(|(_, heard)| **heard).map(|(id, _)| *id);
            oldest.and_then(|id| self.heard.remove(&id));
        }
        while self.runs.len() > MOST {
            let oldest =
                self.runs.iter().filter(others).min_by_key(|(_, run)| run.last_report).map(|(id, _)| *id);
            let Some(oldest) = oldest else { return };
            self.runs.remove(&oldest);
        }
        while self.runs.values().map(|run| run.log.len()).sum::<usize>() > LOGS {
            let logs = self.runs.iter().filter(others).filter(|(_, run)| !run.log.is_empty());
            let oldest = logs.min_by_key(|(_, run)| run.last_report).map(|(id, _)| *id);
            let Some(run) = oldest.and_then(|oldest| self.runs.get_mut(&oldest)) else { return };
            run.log = String::new();
        }
    }
}
