//! One event of a run, and what shows it. [`super::Progress`] makes events, the sinks beside it show them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Byte counts of one step are shown at most this often.
pub const RATE: Duration = Duration::from_millis(200);

/// The step of the whole run.
pub(super) const RUN: &str = "run";
/// The default message of the last event.
pub(super) const DONE: &str = "Done";

/// One event, serialized as in `--progress json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Version of this format: 1.
    pub v: u32,
    /// Counts up from 1.
    pub seq: u64,
    /// RFC 3339, UTC.
    pub time: String,
    /// Stable name of the step; `run` for the whole.
    pub step: String,
    /// The piece of work that it is about, where a run does several side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    pub state: StepState,
    /// Bytes done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    pub message: String,
    /// Only on an entry of a server's journal: its fields for programs. Such an entry is shown with its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Only on the last event: `done` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<StepState>,
    /// Only on the last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
}

impl Event {
    /// The text of an event within a step, for people.
    #[must_use]
    pub(super) fn line(&self) -> String {
        match self.details {
            Some(_) => format!("{} {}", self.time, self.told()),
            None => self.told(),
        }
    }

    /// The message, after what it is about where there are several pieces of work.
    pub(super) fn told(&self) -> String {
        self.part.iter().map(|part| format!("{part}: ")).chain([self.message.clone()]).collect()
    }

    /// What tells its step from those of other pieces of work.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.part.as_deref().unwrap_or_default(), self.step)
    }

    /// True if it only marks the end: the result or error that is printed next says the same.
    pub(super) fn only_ends(&self) -> bool {
        self.step == RUN && (self.state == StepState::Failed || self.message == DONE)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    Started,
    /// The byte count has changed.
    Progress,
    Done,
    Failed,
}

pub trait Sink: Send {
    /// Shows one event. Errors of the terminal or pipe are the sink's to swallow: progress never fails work.
    fn show(&mut self, event: &Event);
}
