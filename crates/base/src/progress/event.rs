//! One event of a run, and what shows it. [`super::Progress`] makes events, the sinks beside it show them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Byte counts of one step are shown at most this often.
pub const RATE: Duration = Duration::from_millis(200);

/// The step that stands for the whole run.
pub(super) const RUN: &str = "run";
/// What the last event of a run says that has nothing else to say.
pub(super) const DONE: &str = "Done";

/// One event. Serialises to the JSON of `--progress json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Version of this format: 1.
    pub v: u32,
    /// Counts up from 1.
    pub seq: u64,
    /// RFC 3339, UTC.
    pub time: String,
    /// Stable name of the step; `run` for the whole.
    pub step: String,
    pub state: StepState,
    /// Bytes done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// For people.
    pub message: String,
    /// Of an entry in the journal of a server: the same for programs. Such an entry is shown with its time.
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
            Some(_) => format!("{} {}", self.time, self.message),
            None => self.message.clone(),
        }
    }

    /// Whether it only ends the run: the results, or the error, that people see next say the same.
    pub(super) fn only_ends(&self) -> bool {
        self.step == RUN && (self.state == StepState::Failed || self.message == DONE)
    }
}

/// Where a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    Started,
    /// Bytes have moved.
    Progress,
    Done,
    Failed,
}

pub trait Sink: Send {
    /// Shows one event. Errors of the terminal or pipe are the sink's to swallow: progress never fails work.
    fn show(&mut self, event: &Event);
}
