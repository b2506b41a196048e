//! The state of an outbox, without threads and without a clock: callers say what time it is.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use super::destination::{Destination, FailureAction, SendError};
use super::policy::OutboxPolicy;

/// The waiting messages, those being sent, and the time of the next attempt.
pub struct OutboxQueue<D: Destination> {
    policy: OutboxPolicy,
    waiting: VecDeque<D::Message>,
    /// How many messages are under way.
    sending: usize,
    /// Attempts in a row.
    failed: u32,
    /// The `Retry-After` of the last attempt.
    asked: Option<Duration>,
    /// The beginning and the length of the pause before the next attempt.
    pause: Option<(Instant, Duration)>,
    dropped: usize,
    refused: bool,
    /// Set once no further message is accepted.
    closing: bool,
    /// Set once no further attempt is made.
    ended: bool,
}

/// The next action of the outbox's thread.
#[derive(Debug, PartialEq, Eq)]
pub enum NextAttempt<M> {
    Send(Vec<M>),
    /// Wait this long, or until the queue changes.
    Wait(Option<Duration>),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxResult {
    /// Messages that still wait or are under way.
    pub unsent: usize,
    /// Messages dropped because the queue was full.
    pub dropped: usize,
    /// True if the destination refused further messages.
    pub refused: bool,
}

impl<D: Destination> OutboxQueue<D> {
    #[must_use]
    pub fn new(policy: OutboxPolicy) -> Self {
        Self {
            policy,
            waiting: VecDeque::new(),
            sending: 0,
            failed: 0,
            asked: None,
            pause: None,
            dropped: 0,
            refused: false,
            closing: false,
            ended: false,
        }
    }

    /// Adds a message, unless the queue is being closed.
    pub fn push(&mut self, message: D::Message) {
        if self.closing {
            return;
        }
        if let Some(at) = self.waiting.iter().rposition(|waiting| D::replaces(&message, waiting)) {
            self.waiting.remove(at);
        }
        if self.waiting.len() >= self.policy.capacity && !D::make_room(&message, &mut self.waiting) {
            self.dropped += 1;
            return;
        }
        self.waiting.push_back(message);
    }

    /// The next action at `now`. Returned messages count as being sent.
    pub fn next(&mut self, now: Instant) -> NextAttempt<D::Message> {
        if self.ended || self.closing && self.waiting.is_empty() {
            return NextAttempt::End;
        }
        if self.waiting.is_empty() {
            return NextAttempt::Wait(None);
        }
        match self.pause_left(now) {
            left if !left.is_zero() => NextAttempt::Wait(Some(left)),
            _ => {
                self.sending = self.waiting.len().min(self.policy.batch);
                NextAttempt::Send(self.waiting.drain(..self.sending).collect())
            }
        }
    }

    fn pause_left(&self, now: Instant) -> Duration {
        let Some((since, pause)) = self.pause else { return Duration::ZERO };
        let pause = match (self.closing, self.failed) {
            (false, _) => pause,
            (true, 0) => Duration::ZERO,
            (true, _) => pause.min(self.policy.closing_pause),
        };
        pause.saturating_sub(now.saturating_duration_since(since))
    }

    /// How many attempts have failed in a row with one that failed with `error`, and what follows from that.
    pub(super) fn after(&mut self, error: &SendError) -> (u32, FailureAction) {
        self.asked = error.wait();
        let failed = self.failed.saturating_add(1);
        (failed, self.policy.after(error, failed))
    }

    /// Records the result of an attempt with these messages, from `begun` to `now`.
    pub fn settle(
        &mut self,
        messages: Vec<D::Message>,
        failure: Option<FailureAction>,
        begun: Instant,
        now: Instant,
    ) {
        self.sending = 0;
        match failure {
            None | Some(FailureAction::GiveUp) => {
                self.failed = 0;
                self.pause = Some((begun, self.policy.rate));
            }
            Some(FailureAction::Retry) => {
                messages.into_iter().rev().for_each(|message| self.waiting.push_front(message));
                self.failed = self.failed.saturating_add(1);
                self.pause = Some((now, self.policy.pause_after(self.failed, self.asked.take())));
            }
            Some(FailureAction::Close) => {
                self.waiting.clear();
                (self.closing, self.refused) = (true, true);
            }
        }
    }

    /// Stops accepting messages; waiting ones are still sent.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// Stops further attempts.
    pub fn end(&mut self) {
        self.ended = true;
    }

    pub fn result(&self) -> OutboxResult {
        let unsent = self.waiting.len() + self.sending;
        OutboxResult { unsent, dropped: self.dropped, refused: self.refused }
    }
}

impl<D: Destination> fmt::Debug for OutboxQueue<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages may be secret.
        self.result().fmt(f)
    }
}
