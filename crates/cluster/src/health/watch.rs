//! Observes a node until there is a verdict, and before a restart.

use std::time::Duration;

use super::baseline::Baseline;
use super::check::{CheckClass, CheckResult};
use super::judge::{BootVerdict, Judge};
use super::probe::{HealthProbe, Observation};
use super::timing::Timing;

/// A baseline observes a node with failures several times: one lost answer must not excuse a release.
const BASELINE_LOOKS: u32 = 3;
const BASELINE_PAUSE: Duration = Duration::from_secs(5);

/// After [`BootVerdict::StayOnTrial`], call it again with the same baseline as long as the node runs.
pub fn observe_until_verdict(
    probe: &dyn HealthProbe,
    baseline: Option<&Baseline>,
    timing: Timing,
    note: &mut dyn FnMut(String),
) -> BootVerdict {
    let mut judge = Judge::new(baseline, timing);
    loop {
        let observation = probe.look();
        if let Some(verdict) = judge.observe(probe.elapsed(), &observation.results, note) {
            note(verdict.to_string());
            return verdict;
        }
        probe.pause(timing.pause);
    }
}

/// The results to store before a restart. A check that held in one of several observations counts as holding.
#[must_use]
pub fn take_baseline(probe: &dyn HealthProbe) -> Baseline {
    let mut best = probe.look();
    for _ in 1..BASELINE_LOOKS {
        if all_required_hold(&best.results) {
            break;
        }
        probe.pause(BASELINE_PAUSE);
        best = better(best, probe.look());
    }
    Baseline::of(&best)
}

#[must_use]
pub fn current(probe: &dyn HealthProbe) -> Vec<CheckResult> {
    probe.look().results
}

#[must_use]
pub fn all_required_hold(results: &[CheckResult]) -> bool {
    results.iter().all(|result| result.check.class == CheckClass::Wanted || result.finding.holds())
}

/// The later observation, with what held in the earlier one.
fn better(earlier: Observation, mut later: Observation) -> Observation {
    for result in &mut later.results {
        let same = earlier
            .results
            .iter()
            .find(|other| other.check.id == result.check.id && other.subject == result.subject);
        if let Some(held) = same.filter(|other| other.finding.holds()) {
            result.finding = held.finding.clone();
        }
    }
    later.alone |= earlier.alone;
    later
}

#[cfg(test)]
mod tests;
