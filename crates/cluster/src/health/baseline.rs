//! The results from before a restart: a check that failed then cannot condemn the release that starts after it.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::check::{CheckResult, Finding, NODE, name};
use super::probe::Observation;
use base::files::{self, Attributes, Root};
use machine::clock;
use machine::paths::below;

pub const BASELINE: &str = "/var/lib/nqrust/update/baseline.json";

/// A release reads what another one wrote, so unknown values are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// The version of the release that ran.
    pub release: Option<String>,
    /// The slot that ran.
    pub slot: Option<String>,
    /// RFC 3339, for people: the clock may have been wrong.
    pub taken: String,
    /// Whether this node was the only server of its cluster.
    pub alone: bool,
    pub results: Vec<RecordedResult>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedResult {
    pub check: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The state of a [`Finding`]; a text, because a later release may have further ones.
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BaselineState {
    Unknown,
    Held,
    NotApplicable,
    Failed,
    /// The check depended on others, which did not answer.
    CouldNotSay,
}

impl Baseline {
    #[must_use]
    pub fn of(observation: &Observation) -> Self {
        Self {
            release: observation.release.clone(),
            slot: observation.slot.clone(),
            taken: clock::now_text(),
            alone: observation.alone,
            results: observation.results.iter().map(RecordedResult::of).collect(),
        }
    }

    /// The stored one; `None` if it is missing or damaged.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        let text = files::read_text(&below(root, BASELINE)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Replaces the one below `root` as a whole: a power cut leaves this one or the one before.
    pub fn write(&self, root: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        Root::open(root)?.write(BASELINE, text.as_bytes(), Attributes { mode: 0o600, owner: None }).map(drop)
    }

    /// Removes it from the file system that is at `/var` of a node.
    pub fn forget_in(var: &Path) -> Result<()> {
        Root::open(var)?.remove(BASELINE.trim_start_matches("/var")).map(drop)
    }

    /// The state of a check before the restart. A subject without a result, such as a unit that had not failed, held if the check
    /// was made.
    pub(super) fn before(&self, result: &CheckResult) -> BaselineState {
        let id = result.check.id;
        let same = |other: &&RecordedResult| other.check == id;
        if let Some(exact) = self.results.iter().filter(same).find(|other| other.subject == result.subject) {
            return exact.known();
        }
        let whole = self.results.iter().filter(same).find(|other| other.subject.is_none());
        match whole.map(RecordedResult::known) {
            Some(BaselineState::Unknown | BaselineState::CouldNotSay) => BaselineState::Unknown,
            Some(_) => BaselineState::Held,
            None if self.results.iter().any(|other| other.check == id) => BaselineState::Held,
            None => BaselineState::Unknown,
        }
    }

    /// Whether the cluster could be asked for this node.
    pub(super) fn cluster_answered(&self) -> bool {
        self.before(&NODE.found(Finding::Healthy)) != BaselineState::CouldNotSay
    }
}

impl RecordedResult {
    fn of(result: &CheckResult) -> Self {
        Self {
            check: result.check.id.to_owned(),
            subject: result.subject.clone(),
            state: state(&result.finding),
            reason: result.finding.reason().map(str::to_owned),
        }
    }

    fn known(&self) -> BaselineState {
        let is = |finding: Finding| state(&finding) == self.state;
        let reason = String::new;
        if is(Finding::Healthy) {
            BaselineState::Held
        } else if is(Finding::NotApplicable) {
            BaselineState::NotApplicable
        } else if is(Finding::failing(reason())) {
            BaselineState::Failed
        } else if is(Finding::cannot_say(reason())) {
            BaselineState::CouldNotSay
        } else {
            BaselineState::Unknown
        }
    }

    /// As [`CheckResult::name`].
    #[must_use]
    pub fn name(&self) -> String {
        name(&self.check, self.subject.as_deref())
    }
}

/// As in JSON.
fn state(finding: &Finding) -> String {
    finding.word().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::check::{ARRAYS, CLOCK, ETCD, GATEWAY, ROOT, UNITS, WATCHDOG};
    use std::fs;

    fn baseline() -> Baseline {
        Baseline::of(&Observation {
            results: vec![
                ROOT.found(Finding::Healthy),
                UNITS.found_at("nqrust-old.service", Finding::failing("it has failed")),
                ARRAYS.found_at("config", Finding::Healthy),
                GATEWAY.found(Finding::NotApplicable),
                CLOCK.found(Finding::cannot_say("x")),
                NODE.found(Finding::cannot_say("x")),
            ],
            alone: true,
            release: Some("1.0".into()),
            slot: Some("a".into()),
        })
    }

    #[test]
    fn what_was_stored_is_read_again_and_a_damaged_one_is_as_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Baseline::read(root.path()), None);
        baseline().write(root.path()).unwrap();
        assert_eq!(Baseline::read(root.path()).unwrap(), baseline_with_time(root.path()));
        let path = below(root.path(), BASELINE);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() - 2 {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(Baseline::read(root.path()), None, "{length} bytes");
        }
        fs::write(&path, vec![0; whole.len()]).unwrap();
        assert_eq!(Baseline::read(root.path()), None);
    }

    #[test]
    fn states_are_written_as_in_other_output() {
        for finding in
            [Finding::Healthy, Finding::failing("x"), Finding::cannot_say("x"), Finding::NotApplicable]
        {
            assert_eq!(serde_json::to_value(&finding).unwrap()["state"], state(&finding));
        }
    }

    /// The same, with the time of the stored one.
    fn baseline_with_time(root: &Path) -> Baseline {
        Baseline { taken: Baseline::read(root).unwrap().taken, ..baseline() }
    }

    #[test]
    fn a_subject_that_was_not_there_held_if_its_check_was_made() {
        let baseline = baseline();
        let before = |result: CheckResult| baseline.before(&result);
        let healthy = || Finding::Healthy;
        assert_eq!(before(ROOT.found(healthy())), BaselineState::Held);
        assert_eq!(before(UNITS.found_at("nqrust-old.service", healthy())), BaselineState::Failed);
        assert_eq!(before(UNITS.found_at("nqrust-new.service", healthy())), BaselineState::Held);
        assert_eq!(before(ARRAYS.found_at("data", healthy())), BaselineState::Held);
        assert_eq!(before(GATEWAY.found(healthy())), BaselineState::NotApplicable);
        assert_eq!(before(CLOCK.found(healthy())), BaselineState::CouldNotSay);
        assert_eq!(before(CLOCK.found_at("x", healthy())), BaselineState::Unknown);
        assert_eq!(before(WATCHDOG.found(healthy())), BaselineState::Unknown);
        assert_eq!(before(ETCD.found(healthy())), BaselineState::Unknown);
        assert!(!baseline.cluster_answered());
    }

    #[test]
    fn what_a_later_release_wrote_is_read_as_far_as_it_is_known() {
        let text = r#"{"alone": true, "new": {}, "results": [{"check": "root", "state": "odd", "more": 1}, {"check": "clock",
            "state": "healthy"}]}"#;
        let later: Baseline = serde_json::from_str(text).unwrap();
        assert_eq!(later.before(&ROOT.found(Finding::Healthy)), BaselineState::Unknown);
        assert_eq!(later.before(&CLOCK.found(Finding::Healthy)), BaselineState::Held);
        assert!(later.alone && later.cluster_answered());
    }
}
