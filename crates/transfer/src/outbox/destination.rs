//! What an outbox asks of the one who knows what is sent, and where.

use std::collections::VecDeque;
use std::time::Duration;

/// Where the messages of an outbox go: one server, or several that hear of the same thing.
pub trait Destination: Send + 'static {
    type Message: Send;

    /// Makes one attempt to send these messages, the oldest first.
    fn send(&mut self, messages: &[Self::Message]) -> Result<(), SendError>;

    /// Is called after each attempt that failed, before anything follows from it. `failed` counts the attempts that failed
    /// in a row, this one too.
    fn failed(&mut self, why: &str, failed: u32, next: AfterFailure);

    /// Whether `newer` takes the place of a message that still waits.
    fn replaces(_newer: &Self::Message, _waiting: &Self::Message) -> bool {
        false
    }

    /// Decides what gives way where the queue is full: it may remove what waits. False drops `newer`.
    fn make_room(_newer: &Self::Message, _waiting: &mut VecDeque<Self::Message>) -> bool {
        false
    }
}

/// Why an attempt failed, as a clause without the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// Another attempt may succeed.
    Passing(String),
    /// Another attempt may succeed, and the destination asks to wait so long before.
    Busy(String, Duration),
    /// The certificate of the destination is not trusted, which lasts unless other authorities become so.
    Distrusted(String),
    /// The destination does not want to hear more, or can never be reached.
    Refused(String),
}

impl SendError {
    pub fn why(&self) -> &str {
        let (Self::Passing(why) | Self::Busy(why, _) | Self::Distrusted(why) | Self::Refused(why)) = self;
        why
    }

    /// Whether another attempt may succeed.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Passing(_) | Self::Busy(..))
    }

    /// How long the destination asks to wait.
    pub fn wait(&self) -> Option<Duration> {
        if let Self::Busy(_, wait) = self { Some(*wait) } else { None }
    }
}

/// What follows an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The messages wait for another attempt.
    Retry,
    /// The messages are dropped; those that wait are sent.
    GiveUp,
    /// Everything is dropped, and nothing is sent any more.
    Close,
}
