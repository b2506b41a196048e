//! Messages to other systems that nothing waits for: webhooks of an install, reports to the server of a fleet.
//!
//! An [`Outbox`] has one bounded queue and one thread that sends from it, so that whoever pushes never waits. It retries with
//! a backoff, and has some time for the rest when it is closed. A [`Destination`] defines the messages, sends them, judges the
//! responses and decides what is dropped from a full queue.
//!
//! | Module | What it knows |
//! |---|---|
//! | `destination` | what a user of an outbox implements |
//! | `policy` | the limits: capacity, attempts, pauses, the time for closing |
//! | `queue` | the state of an outbox as a function of time, without threads |
//! | [`request`] | one HTTP request to a server that a person named |
//! | `warnings` | warnings about a destination, until the run is over |

mod destination;
mod policy;
mod queue;
pub mod request;
#[cfg(test)]
mod tests;
mod warnings;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base::parallel::locked;

pub use destination::{Destination, FailureAction, SendError};
pub use policy::OutboxPolicy;
pub use queue::{NextAttempt, OutboxQueue, OutboxResult};
pub use warnings::DeliveryWarnings;

/// Sends messages to one destination; clones share its queue. Dropped without [`Outbox::close`], it goes on sending while the process lives.
pub struct Outbox<D: Destination>(Arc<SharedQueue<D>>);

struct SharedQueue<D: Destination> {
    queue: Mutex<OutboxQueue<D>>,
    changed: Condvar,
    policy: OutboxPolicy,
}

impl<D: Destination> Outbox<D> {
    /// Starts the thread that sends.
    #[must_use]
    pub fn new(destination: D, policy: OutboxPolicy) -> Self {
        let queue = Mutex::new(OutboxQueue::new(policy));
        let shared = Arc::new(SharedQueue { queue, changed: Condvar::new(), policy });
        let worker = shared.clone();
        std::thread::spawn(move || worker.work(destination));
        Self(shared)
    }

    /// Adds a message. Never waits for the destination.
    pub fn push(&self, message: D::Message) {
        self.0.lock().push(message);
        self.0.changed.notify_all();
    }

    /// Accepts no further message, and waits until all are sent, as long as the policy says. After that no attempt begins;
    /// one that is under way is left alone.
    pub fn close(&self) -> OutboxResult {
        let end = Instant::now() + self.0.policy.flush;
        let mut queue = self.0.lock();
        queue.close();
        self.0.changed.notify_all();
        while queue.result().unsent > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            queue = self.0.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.end();
        self.0.changed.notify_all();
        queue.result()
    }
}

impl<D: Destination> SharedQueue<D> {
    fn lock(&self) -> MutexGuard<'_, OutboxQueue<D>> {
        locked(&self.queue)
    }

    fn work(&self, mut destination: D) {
        while let Some(messages) = self.next() {
            let begun = Instant::now();
            let failure = destination.send(&messages).err().map(|error| {
                let (failed, next) = self.lock().after(&error);
                destination.failed(error.why(), failed, next);
                next
            });
            self.lock().settle(messages, failure, begun, Instant::now());
            self.changed.notify_all();
        }
    }

    /// Waits for the next messages to send; none when the outbox is closed.
    fn next(&self) -> Option<Vec<D::Message>> {
        let mut queue = self.lock();
        loop {
            queue = match queue.next(Instant::now()) {
                NextAttempt::Send(messages) => return Some(messages),
                NextAttempt::End => return None,
                NextAttempt::Wait(None) => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                NextAttempt::Wait(Some(time)) => {
                    self.changed.wait_timeout(queue, time).unwrap_or_else(PoisonError::into_inner).0
                }
            }
        }
    }
}

impl<D: Destination> Clone for Outbox<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D: Destination> fmt::Debug for Outbox<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.lock().fmt(f)
    }
}
