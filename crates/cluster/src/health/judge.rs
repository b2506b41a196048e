//! From observations in time to the verdict on a boot: a state machine without effects.
//!
//! A boot is good once all required checks hold for [`Timing::hold`], beginning within [`Timing::budget`]. Times are those of the
//! monotonic clock.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::baseline::{Baseline, BaselineState};
use super::check::{CheckClass, CheckResult, Finding, Proof};
use super::timing::Timing;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum BootVerdict {
    /// With failures that do not count against it.
    Good { degraded: Vec<Complaint> },
    /// Never empty.
    Bad { failed: Vec<FailedCheck> },
    /// Only the cluster could decide, and it has not answered since before the restart: observe again later.
    StayOnTrial { why: Vec<Complaint> },
}

/// A check that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Complaint {
    pub check: String,
    pub reason: String,
    /// It is required, but the release is not to blame.
    pub excused: bool,
}

/// A check that condemns a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedCheck {
    pub check: String,
    /// For how long it has not held without a break.
    pub seconds: u64,
    /// How often it has held in between.
    pub relapses: u32,
    /// The last reason.
    pub reason: String,
}

/// What a result means for the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Holds,
    Excused,
    /// It does not hold, and nothing shows that the boot is to blame.
    Waits,
    Condemns,
}

/// Weighs a result against what was known before the restart.
pub(super) fn weigh(result: &CheckResult, baseline: Option<&Baseline>) -> Weight {
    if result.finding.holds() {
        return Weight::Holds;
    }
    if result.check.class == CheckClass::Wanted {
        return Weight::Excused;
    }
    let before = baseline.map_or(BaselineState::Unknown, |baseline| baseline.before(result));
    let silent = matches!(result.finding, Finding::CannotSay { .. });
    let (alone, answered) =
        baseline.map_or((false, true), |baseline| (baseline.alone, baseline.cluster_answered()));
    match (result.check.proof, before) {
        (_, BaselineState::Failed) => Weight::Excused,
        (Proof::Nothing, BaselineState::CouldNotSay) if silent => Weight::Excused,
        (Proof::Nothing, _) => Weight::Condemns,
        (Proof::Held, BaselineState::Held) => Weight::Condemns,
        (Proof::Held, _) => Weight::Excused,
        // On the first start after an install: joining may take long, and says nothing of the slot.
        (Proof::Cluster, _) if baseline.is_none() => Weight::Excused,
        (Proof::Cluster, BaselineState::Unknown | BaselineState::NotApplicable) => Weight::Waits,
        (Proof::Cluster, BaselineState::CouldNotSay) if silent && alone => Weight::Excused,
        (Proof::Cluster, BaselineState::CouldNotSay) if silent => Weight::Waits,
        (Proof::Cluster, BaselineState::Held) if silent && !alone && !answered => Weight::Waits,
        (Proof::Cluster, BaselineState::CouldNotSay | BaselineState::Held) => Weight::Condemns,
    }
}

/// Since when a check has not held, and how often it has relapsed.
#[derive(Clone, Copy, Debug)]
struct FailingCheck {
    since: Option<Duration>,
    begun: u32,
}

#[derive(Debug)]
pub struct Judge<'a> {
    baseline: Option<&'a Baseline>,
    timing: Timing,
    /// The first and the last observation.
    begun: Option<Duration>,
    last: Duration,
    /// Since when everything required holds.
    holding: Option<Duration>,
    troubles: BTreeMap<String, FailingCheck>,
    /// What was last told of each check.
    told: BTreeMap<String, &'static str>,
}

impl<'a> Judge<'a> {
    #[must_use]
    pub fn new(baseline: Option<&'a Baseline>, timing: Timing) -> Self {
        Self {
            baseline,
            timing,
            begun: None,
            last: Duration::ZERO,
            holding: None,
            troubles: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Takes the results of an observation at the monotonic time `at`; passes each change to `note` as a line.
    pub fn observe(
        &mut self,
        at: Duration,
        results: &[CheckResult],
        note: &mut dyn FnMut(String),
    ) -> Option<BootVerdict> {
        let first = self.begun.is_none();
        let begun = *self.begun.get_or_insert(at);
        let at = at.max(self.last);
        // Time without observations does not count: the machine may have been stopped.
        let unwatched = at.saturating_sub(self.last) > self.timing.hold;
        self.last = at;
        let weighed: Vec<_> = results.iter().map(|result| (result, weigh(result, self.baseline))).collect();
        self.follow(at, &weighed);
        self.tell(first, &weighed, note);
        let all_hold = weighed.iter().all(|(_, weight)| matches!(weight, Weight::Holds | Weight::Excused));
        if !all_hold {
            if self.holding.take().is_some() {
                note("a required check no longer holds".to_owned());
            }
            let over = at.saturating_sub(begun) >= self.timing.budget;
            return over.then(|| self.conclude(at, &weighed));
        }
        if unwatched {
            self.holding = None;
        }
        let since = *self.holding.get_or_insert_with(|| {
            note(format!("all required checks hold: good if they do for {} s", self.timing.hold.as_secs()));
            at
        });
        (at - since >= self.timing.hold)
            .then(|| BootVerdict::Good { degraded: complaints(&weighed, Weight::Excused) })
    }

    fn follow(&mut self, at: Duration, weighed: &[(&CheckResult, Weight)]) {
        let failing: BTreeMap<_, _> = weighed
            .iter()
            .filter(|(result, _)| !result.finding.holds())
            .map(|(result, _)| (result.name(), ()))
            .collect();
        for (name, trouble) in &mut self.troubles {
            if !failing.contains_key(name) {
                trouble.since = None;
            }
        }
        for name in failing.into_keys() {
            let trouble = self.troubles.entry(name).or_insert(FailingCheck { since: None, begun: 0 });
            if trouble.since.is_none() {
                *trouble = FailingCheck { since: Some(at), begun: trouble.begun.saturating_add(1) };
            }
        }
    }

    /// Notes changes; at first, only what does not hold.
    fn tell(&mut self, first: bool, weighed: &[(&CheckResult, Weight)], note: &mut dyn FnMut(String)) {
        let now: BTreeMap<_, _> =
            weighed.iter().map(|(result, _)| (result.name(), result.finding.word())).collect();
        for (result, weight) in weighed {
            let name = result.name();
            let before = self.told.get(&name).copied();
            let news = before != Some(result.finding.word());
            let quiet = before.is_none() && result.finding.holds();
            if news && !quiet {
                let excuse = match weight {
                    Weight::Excused if result.check.class == CheckClass::Wanted => " (wanted only)",
                    Weight::Excused if self.baseline.is_none() => {
                        " (ignored: there is no baseline from before the restart)"
                    }
                    Weight::Excused => " (ignored: it did not hold before the restart)",
                    Weight::Waits => " (waiting)",
                    Weight::Holds | Weight::Condemns => "",
                };
                note(format!("{result}{excuse}"));
            }
        }
        let gone = self.told.iter().filter(|(name, word)| !now.contains_key(*name) && **word == "failing");
        gone.for_each(|(name, _)| note(format!("{name}: healthy")));
        if first && now.values().all(|word| *word == "healthy" || *word == "not applicable") {
            note("every check holds".to_owned());
        }
        self.told = now;
    }

    /// The verdict when the time is up.
    fn conclude(&self, at: Duration, weighed: &[(&CheckResult, Weight)]) -> BootVerdict {
        let condemning = weighed.iter().filter(|(_, weight)| *weight == Weight::Condemns);
        let failed: Vec<_> = condemning
            .map(|(result, _)| {
                let check = result.name();
                let trouble = self.troubles.get(&check);
                let since = trouble.and_then(|trouble| trouble.since).unwrap_or(at);
                FailedCheck {
                    check,
                    seconds: (at - since).as_secs(),
                    relapses: trouble.map_or(0, |trouble| trouble.begun.saturating_sub(1)),
                    reason: result.finding.reason().unwrap_or_default().to_owned(),
                }
            })
            .collect();
        if failed.is_empty() {
            return BootVerdict::StayOnTrial { why: complaints(weighed, Weight::Waits) };
        }
        BootVerdict::Bad { failed }
    }
}

fn complaints(weighed: &[(&CheckResult, Weight)], of: Weight) -> Vec<Complaint> {
    let of = weighed.iter().filter(|(_, weight)| *weight == of);
    of.map(|(result, weight)| Complaint {
        check: result.name(),
        reason: result.finding.reason().unwrap_or_default().to_owned(),
        excused: *weight == Weight::Excused && result.check.class == CheckClass::Required,
    })
    .collect()
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.reason)
    }
}

impl fmt::Display for FailedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not hold, for {} s", self.check, self.seconds)?;
        if self.relapses > 0 {
            write!(f, " after {} earlier times", self.relapses)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl fmt::Display for BootVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, parts) = match self {
            Self::Good { degraded } if degraded.is_empty() => return f.write_str("good"),
            Self::Good { degraded } => ("good, but degraded: ", told(degraded)),
            Self::Bad { failed } => ("bad: ", told(failed)),
            Self::StayOnTrial { why } => ("still on trial: ", told(why)),
        };
        write!(f, "{head}{}", parts.join("; "))
    }
}

fn told(parts: &[impl fmt::Display]) -> Vec<String> {
    parts.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
