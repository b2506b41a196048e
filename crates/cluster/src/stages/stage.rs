//! One stage of a node that joins its cluster, and the current one of several.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::known_errors::JoinTrouble;

/// The stages in the order in which they are reached; for the first node of a cluster [`StageName::Server`] comes after
/// [`StageName::Service`], which serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageName {
    Network,
    Server,
    Service,
    /// The images of the role are in the store.
    Images,
    Registered,
    /// The cluster reports the node as ready.
    Ready,
}

impl StageName {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageState {
    /// Reached.
    Done,
    /// It may come by itself.
    Waiting,
    /// It needs a person's action.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    pub name: StageName,
    pub state: StageState,
    /// Time of its last change, in RFC 3339; known only to the watching unit.
    pub since: Option<String>,
    /// What was observed, or the last error in words. Holds no secrets.
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

#[must_use]
pub fn all_done(stages: &[Stage]) -> bool {
    stages.iter().all(|stage| stage.state == StageState::Done)
}

#[must_use]
pub fn mark(stage: &Stage) -> String {
    let mark = match stage.state {
        StageState::Done => 'x',
        StageState::Waiting => ' ',
        StageState::Failed => '!',
    };
    format!("[{mark}] {}", stage.name.text())
}

/// The network as long as it is not done, because nothing else can be repaired remotely without it; then the first that has failed,
/// else the first that is not done.
#[must_use]
pub fn current(stages: &[Stage]) -> Option<&Stage> {
    let network =
        stages.iter().find(|stage| stage.name == StageName::Network && stage.state != StageState::Done);
    let first = |state| stages.iter().find(move |stage| stage.state == state);
    network.or_else(|| first(StageState::Failed)).or_else(|| first(StageState::Waiting))
}
