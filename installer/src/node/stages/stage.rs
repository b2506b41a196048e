//! One stage on the way of a node into its cluster, and which of several it is in.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::known_errors::JoinTrouble;

/// One step on the way, in the order in which they come; for the first node of a cluster [`StageName::Server`] comes after
/// [`StageName::Service`], which it is served by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageName {
    /// The management network has an address.
    Network,
    /// The cluster answers at its address.
    Server,
    /// The distribution's service runs.
    Service,
    /// The images of the role are in the store.
    Images,
    /// The cluster knows the node.
    Registered,
    /// The cluster says that the node is ready.
    Ready,
}

impl StageName {
    /// The name as it is printed.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Server => "server",
            Self::Service => "service",
            Self::Images => "images",
            Self::Registered => "registered",
            Self::Ready => "ready",
        }
    }
}

/// Where a stage stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageState {
    /// It is behind the node.
    Done,
    /// It may come by itself.
    Waiting,
    /// It does not come unless somebody does something.
    Failed,
}

impl StageState {
    fn text(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

/// One stage as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Which.
    pub name: StageName,
    /// Where it stands.
    pub state: StageState,
    /// Since when it stands there, in RFC 3339; known to the unit that watches.
    pub since: Option<String>,
    /// What was seen, or the last error in words. Holds no secrets.
    pub detail: String,
    /// What a person can do.
    pub next: Option<String>,
}

impl Stage {
    pub(super) fn new(name: StageName, state: StageState, detail: impl Into<String>) -> Self {
        Self { name, state, since: None, detail: detail.into(), next: None }
    }

    /// A stage that waits or has failed for this reason.
    pub(super) fn troubled(name: StageName, trouble: JoinTrouble) -> Self {
        let state = if trouble.lasting { StageState::Failed } else { StageState::Waiting };
        Self { next: trouble.next, ..Self::new(name, state, trouble.text) }
    }
}

impl fmt::Display for Stage {
    /// One line without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:10} {:7} {}", self.name.text(), self.state.text(), self.detail)?;
        if let (false, Some(since)) = (self.state == StageState::Done, &self.since) {
            write!(f, " (since {since})")?;
        }
        Ok(())
    }
}

/// Whether all of it is done.
#[must_use]
pub fn all_done(stages: &[Stage]) -> bool {
    stages.iter().all(|stage| stage.state == StageState::Done)
}

/// A stage as one mark and its name.
#[must_use]
pub fn mark(stage: &Stage) -> String {
    let mark = match stage.state {
        StageState::Done => 'x',
        StageState::Waiting => ' ',
        StageState::Failed => '!',
    };
    format!("[{mark}] {}", stage.name.text())
}

/// The stage that the node is in: the network as long as there is none, because nothing else can be put right from afar
/// without it and much of what fails later fails for want of it; then the first that has failed, else the first that is
/// not done.
#[must_use]
pub fn current(stages: &[Stage]) -> Option<&Stage> {
    let network =
        stages.iter().find(|stage| stage.name == StageName::Network && stage.state != StageState::Done);
    let first = |state| stages.iter().find(move |stage| stage.state == state);
    network.or_else(|| first(StageState::Failed)).or_else(|| first(StageState::Waiting))
}
