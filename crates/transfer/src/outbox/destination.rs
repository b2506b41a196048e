//! The interface that a user of an outbox implements.

use std::collections::VecDeque;
use std::time::Duration;

/// The receiver of an outbox's messages: one server, or several that get the same messages.
pub trait Destination: Send + 'static {
    type Message: Send;

    /// Makes one attempt to send these messages, the oldest first.
    fn send(&mut self, messages: &[Self::Message]) -> Result<(), SendError>;

    /// Called after each failed attempt, before its consequence. `failed` counts the failed attempts in a row, including this
    /// one.
    fn failed(&mut self, why: &str, failed: u32, next: FailureAction);

    fn replaces(_newer: &Self::Message, _waiting: &Self::Message) -> bool {
        false
    }

    /// Makes room in a full queue by removing waiting messages. False drops `newer`.
    fn make_room(_newer: &Self::Message, _waiting: &mut VecDeque<Self::Message>) -> bool {
        false
    }
}

/// Why an attempt failed, as a clause without the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// Another attempt may succeed.
    Temporary(String),
    /// Another attempt may succeed after this time, which the destination asked for.
    Busy(String, Duration),
    /// The certificate of the destination is not trusted; permanent unless trusted CA certificates change.
    Distrusted(String),
    /// The destination refuses further messages, or can never be reached.
    Refused(String),
}

impl SendError {
    pub fn why(&self) -> &str {
        let (Self::Temporary(why) | Self::Busy(why, _) | Self::Distrusted(why) | Self::Refused(why)) = self;
        why
    }

    /// True if another attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Temporary(_) | Self::Busy(..))
    }

    /// The `Retry-After` of the destination.
    pub fn wait(&self) -> Option<Duration> {
        if let Self::Busy(_, wait) = self { Some(*wait) } else { None }
    }
}

/// The consequence of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// The messages wait for another attempt.
    Retry,
    /// The messages are dropped; those that wait are sent.
    GiveUp,
    /// Everything is dropped, and nothing is sent any more.
    Close,
}
