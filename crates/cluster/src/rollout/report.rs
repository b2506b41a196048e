//! Reports the updates of a node to its cluster: annotations of its Node object, and an event for each change. A cluster that does
//! not answer gets the report later, and never holds up an update.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::node_object::{NodeEvent, NodeObject};
use base::encode::json_text;
use base::files::{self, Attributes, Root};
use machine::clock;
use machine::paths::below;
use machine::update_state::ReleaseId;

pub const VERSION: &str = "nqrust.io/os-version";
pub const SLOT: &str = "nqrust.io/slot";
pub const STATE: &str = "nqrust.io/update-state";
/// Why an update was taken back, or has failed.
pub const REASON: &str = "nqrust.io/update-reason";
/// SHA-256 of the manifest of the release that the state is about: of the one that runs, with `idle` and `good`.
pub const DIGEST: &str = "nqrust.io/update-digest";

/// The last report.
const TOLD: &str = "/var/lib/nqrust/update/told.json";
/// Characters of a reason: all annotations of an object together may have 256 KiB, and messages of events 1 KiB.
const REASON_CHARACTERS_MAX: usize = 900;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportedState {
    Idle,
    Staged,
    /// The next restart tries a release.
    PendingReboot,
    Trial,
    Good,
    RolledBack,
    /// It failed before its restart; what runs is as it was.
    Failed,
}

impl ReportedState {
    pub const ALL: [Self; 7] = [
        Self::Idle,
        Self::Staged,
        Self::PendingReboot,
        Self::Trial,
        Self::Good,
        Self::RolledBack,
        Self::Failed,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Staged => "staged",
            Self::PendingReboot => "pending-reboot",
            Self::Trial => "trial",
            Self::Good => "good",
            Self::RolledBack => "rolled-back",
            Self::Failed => "failed",
        }
    }

    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// The reason of an event; none where nothing has happened.
    fn event(self) -> Option<&'static str> {
        match self {
            Self::Idle => None,
            Self::Staged => Some("UpdateStaged"),
            Self::PendingReboot => Some("UpdatePending"),
            Self::Trial => Some("UpdateTrial"),
            Self::Good => Some("UpdateGood"),
            Self::RolledBack => Some("UpdateRolledBack"),
            Self::Failed => Some("UpdateFailed"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub version: String,
    pub slot: String,
    pub state: ReportedState,
    /// The release that the state is about.
    pub about: ReleaseId,
    #[serde(default)]
    pub reason: String,
}

impl NodeReport {
    /// Tells the cluster of the node at `root`. Does nothing on a node without a cluster.
    ///
    /// # Errors
    /// Why the cluster could not be told, a clause.
    pub fn tell(&self, root: &Path) -> Result<(), String> {
        let Some(own) = NodeObject::read(root) else { return Ok(()) };
        own.annotate(root, &self.annotations())?;
        let told: Option<Self> =
            files::read_text(&below(root, TOLD)).ok().and_then(|text| serde_json::from_str(&text).ok());
        if told.as_ref() == Some(self) {
            return Ok(());
        }
        if let Some(event) = self.event() {
            own.tell(root, &event)?;
        }
        let private = Attributes { mode: 0o600, owner: None };
        let written = Root::open(root).and_then(|root| root.write(TOLD, json_text(self).as_bytes(), private));
        written.map(drop).map_err(|error| format!("remembering what the cluster was told: {error:#}"))
    }

    fn annotations(&self) -> BTreeMap<&'static str, Option<String>> {
        let reason = self.short_reason();
        BTreeMap::from([
            (VERSION, Some(self.version.clone())),
            (SLOT, Some(self.slot.clone())),
            (STATE, Some(self.state.as_str().to_owned())),
            (REASON, (!reason.is_empty()).then_some(reason)),
            (DIGEST, Some(self.about.digest.to_string())),
        ])
    }

    fn event(&self) -> Option<NodeEvent> {
        let reason = self.state.event()?;
        let (about, slot, runs) = (&self.about.version, &self.slot, &self.version);
        let message = match self.state {
            ReportedState::Idle => return None,
            ReportedState::Staged => format!("{about} is staged; {runs} runs"),
            ReportedState::PendingReboot => format!("the next restart tries {about}; {runs} runs"),
            ReportedState::Trial => format!("{about} runs on trial in slot {slot}"),
            ReportedState::Good => format!("{about} runs in slot {slot} and is good"),
            ReportedState::RolledBack => {
                format!("{about} was taken back, {runs} runs again: {}", self.short_reason())
            }
            ReportedState::Failed => {
                format!("an update has failed, {runs} runs as before: {}", self.short_reason())
            }
        };
        let warning = matches!(self.state, ReportedState::RolledBack | ReportedState::Failed);
        Some(NodeEvent { reason, message, warning, at: clock::now_text() })
    }

    fn short_reason(&self) -> String {
        self.reason.chars().take(REASON_CHARACTERS_MAX).collect()
    }
}

/// Tells the cluster until it is told, or `stop` says that nobody waits any longer. A cluster that starts together with its nodes
/// takes minutes to answer.
pub fn tell_until(root: &Path, report: &NodeReport, pause: Duration, stop: &dyn Fn() -> bool) -> bool {
    loop {
        if report.tell(root).is_ok() {
            return true;
        }
        if stop() {
            return false;
        }
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::Digest;

    fn report(state: ReportedState, reason: &str) -> NodeReport {
        let about = ReleaseId { digest: Digest::of(b"2"), version: "2".into() };
        NodeReport { version: "1".into(), slot: "a".into(), state, about, reason: reason.into() }
    }

    #[test]
    fn every_state_has_its_annotations_and_its_event() {
        for state in ReportedState::ALL {
            assert_eq!(ReportedState::read(state.as_str()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str(), "one word for one thing");
            let report = report(state, "");
            assert_eq!(report.annotations()[REASON], None, "an old reason is removed");
            assert_eq!(report.annotations()[STATE].as_deref(), Some(state.as_str()));
            assert_eq!(report.event().is_some(), state != ReportedState::Idle);
        }
        assert_eq!(ReportedState::read("pending"), None);
    }

    #[test]
    fn a_reason_is_told_as_long_as_the_cluster_takes_it() {
        let report = report(ReportedState::RolledBack, &"é".repeat(5000));
        let reason = report.annotations()[REASON].clone().unwrap();
        assert_eq!(reason.chars().count(), REASON_CHARACTERS_MAX);
        let event = report.event().unwrap();
        assert!(event.warning && event.message.starts_with("2 was taken back, 1 runs again: é"));
        assert!(event.message.chars().count() <= 1024, "the API refuses longer ones");
    }

    #[test]
    fn a_node_without_a_cluster_has_nobody_to_tell() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(report(ReportedState::Good, "").tell(root.path()), Ok(()));
        assert!(!below(root.path(), TOLD).exists());
    }
}
