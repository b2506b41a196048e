//! The report of a run, as a table and as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::measurements::{ErrorCount, KindSummary};
use crate::process::ProcessUsage;
use crate::run::{LoadPlan, LoadResult, MachineOutcome};

/// The most failures that are quoted.
const QUOTED: usize = 10;

/// What a run comes to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    pub machines: u32,
    /// How many have reached the goal of the run.
    pub reached: usize,
    /// How many have to be decided about: the answer with their configuration was lost.
    pub configurations_lost: usize,
    pub failed: usize,
    /// The first failures.
    pub failures: Vec<String>,
    /// What servers gave machines that they must not give; empty after a good run.
    pub violations: Vec<String>,
    pub seconds: f64,
    /// Machines that reached the goal, in an hour at this rate.
    pub per_hour: f64,
    pub requests: Vec<KindSummary>,
    pub errors: Vec<ErrorCount>,
    pub servers: Vec<ServerCost>,
}

/// What the run cost a server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ServerCost {
    pub pid: u32,
    pub peak_mib: f64,
    pub cpu_seconds: f64,
    pub cpu_ms_per_machine: f64,
}

impl LoadReport {
    /// `before` and `after` have the processes of the servers, in the same order.
    #[must_use]
    pub fn new(
        plan: &LoadPlan,
        result: &LoadResult,
        before: &[ProcessUsage],
        after: &[ProcessUsage],
    ) -> Self {
        let count = |outcome: fn(&MachineOutcome) -> bool| {
            result.machines.iter().filter(|machine| outcome(&machine.outcome)).count()
        };
        let reached = count(|outcome| *outcome == MachineOutcome::Reached);
        let failures = result.machines.iter().filter_map(|machine| match &machine.outcome {
            MachineOutcome::Failed(why) => Some(format!("{}: {why}", machine.machine.hostname())),
            _ => None,
        });
        let seconds = result.time.as_secs_f64();
        let cost = |(before, after): (&ProcessUsage, &ProcessUsage)| {
            let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
            ServerCost {
                pid: after.pid,
                peak_mib: lossy(after.peak_kib) / 1024.0,
                cpu_seconds,
                cpu_ms_per_machine: cpu_seconds * 1e3 / f64::from(plan.machines.max(1)),
            }
        };
        Self {
            machines: plan.machines,
            reached,
            configurations_lost: count(|outcome| *outcome == MachineOutcome::ConfigurationLost),
            failed: count(|outcome| matches!(outcome, MachineOutcome::Failed(_))),
            failures: failures.take(QUOTED).collect(),
            violations: violations(result),
            seconds,
            per_hour: lossy(reached as u64) * 3600.0 / seconds,
            requests: result.measured.summaries(),
            errors: result.measured.errors(),
            servers: before.iter().zip(after).map(cost).collect(),
        }
    }

    /// Whether every machine reached its goal and got what was its own.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.reached == self.machines as usize && self.violations.is_empty()
    }

    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} of {} machines in {:.1} s ({:.0} an hour); {} failed, {} configurations lost, {} violations\n\n",
            self.reached,
            self.machines,
            self.seconds,
            self.per_hour,
            self.failed,
            self.configurations_lost,
            self.violations.len()
        );
        text.push_str(&line(&[
            "request", "answers", "errors", "a second", "MB/s", "p50 ms", "p99 ms", "max ms",
        ]));
        for kind in &self.requests {
            text.push_str(&line(&[
                kind.kind.name(),
                &kind.count.to_string(),
                &kind.errors.to_string(),
                &format!("{:.1}", lossy(kind.count) / self.seconds),
                &format!("{:.1}", lossy(kind.bytes) / 1e6 / self.seconds),
                &format!("{:.1}", kind.p50_ms),
                &format!("{:.1}", kind.p99_ms),
                &format!("{:.1}", kind.max_ms),
            ]));
        }
        for ErrorCount { kind, error, count } in &self.errors {
            text.push_str(&format!("{count} times {}: {error}\n", kind.name()));
        }
        for server in &self.servers {
            text.push_str(&format!(
                "server {}: peak memory {:.1} MiB, {:.1} s of CPU time, {:.2} ms for a machine\n",
                server.pid, server.peak_mib, server.cpu_seconds, server.cpu_ms_per_machine
            ));
        }
        for what in self.failures.iter().chain(&self.violations) {
            text.push_str(&format!("{what}\n"));
        }
        text
    }
}

/// What no server may do: give a machine what is not its own, or its configuration twice.
fn violations(result: &LoadResult) -> Vec<String> {
    let mut found: Vec<_> =
        result.machines.iter().flat_map(|machine| machine.violations.iter().cloned()).collect();
    let given: BTreeMap<_, _> =
        result.machines.iter().map(|machine| (machine.machine.number, machine.given)).collect();
    let twice = given.iter().filter(|(_, given)| **given > 1);
    found.extend(twice.map(|(number, given)| format!("node-{number} got its configuration {given} times")));
    found
}

fn line(cells: &[&str; 8]) -> String {
    let [first, rest @ ..] = cells;
    let rest: String = rest.iter().map(|cell| format!("{cell:>10}")).collect();
    format!("{first:<17}{rest}\n")
}

#[allow(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
fn lossy(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measurements::Measurements;
    use crate::run::MachineResult;
    use crate::virtual_machine::VirtualMachine;

    #[test]
    fn a_configuration_that_was_given_twice_makes_a_run_bad() {
        let machine = |number, given, outcome| MachineResult {
            machine: VirtualMachine::new(number, 1),
            outcome,
            given,
            violations: Vec::new(),
            time: Duration::ZERO,
        };
        let plan = LoadPlan { machines: 2, ..LoadPlan::default() };
        let report = |machines| {
            let result =
                LoadResult { machines, measured: Measurements::default(), time: Duration::from_secs(36) };
            let usage = |cpu_seconds| ProcessUsage { pid: 7, peak_kib: 2048, cpu_seconds };
            LoadReport::new(&plan, &result, &[usage(1.0)], &[usage(1.5)])
        };
        let good =
            report(vec![machine(0, 1, MachineOutcome::Reached), machine(1, 1, MachineOutcome::Reached)]);
        assert!(good.is_good());
        assert_eq!((good.per_hour, good.servers[0].cpu_ms_per_machine), (200.0, 250.0));
        let twice =
            report(vec![machine(0, 1, MachineOutcome::Reached), machine(1, 2, MachineOutcome::Reached)]);
        assert_eq!(twice.violations, ["node-1 got its configuration 2 times"]);
        assert!(!twice.is_good() && twice.table().contains("1 violations"));
        let failed = report(vec![
            machine(0, 1, MachineOutcome::Reached),
            machine(1, 0, MachineOutcome::Failed("why".into())),
        ]);
        assert!(!failed.is_good() && failed.table().contains("node-1: why"), "{}", failed.table());
    }
}
