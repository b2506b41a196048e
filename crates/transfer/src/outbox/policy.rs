//! The limits of an outbox.

use std::time::Duration;

use super::destination::{FailureAction, SendError};
use crate::backoff::backoff;

/// The longest accepted `Retry-After`.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub struct OutboxPolicy {
    /// How many messages wait at most.
    pub capacity: usize,
    /// How many messages are sent in one attempt at most.
    pub batch: usize,
    /// The time limit of one request, which the destination keeps.
    pub timeout: Duration,
    /// The least time from the beginning of an attempt that succeeds to the beginning of the next.
    pub rate: Duration,
    /// After how many attempts that failed in a row messages are given up; never, where there is no limit.
    pub attempts: Option<u32>,
    /// The pause after the first failure in a row; it doubles with each further one.
    pub pause: Duration,
    pub longest_pause: Duration,
    /// The longest pause while the outbox is being closed.
    pub closing_pause: Duration,
    /// How long closing waits for what is not sent yet.
    pub flush: Duration,
}

impl OutboxPolicy {
    /// The consequence of an error after `failed` failed attempts in a row.
    pub(super) fn after(&self, error: &SendError, failed: u32) -> FailureAction {
        match error {
            SendError::Refused(_) | SendError::Distrusted(_) => FailureAction::Close,
            _ if self.attempts.is_some_and(|most| failed >= most) => FailureAction::GiveUp,
            SendError::Temporary(_) | SendError::Busy(..) => FailureAction::Retry,
        }
    }

    /// The pause before the next attempt: at least the `Retry-After` that the destination `asked` for, up to a minute. Only
    /// later messages wait for a message.
    pub(super) fn pause_after(&self, failed: u32, asked: Option<Duration>) -> Duration {
        let asked = asked.unwrap_or_default().min(LONGEST_ASKED);
        backoff(self.pause, failed, self.longest_pause).max(asked)
    }
}
