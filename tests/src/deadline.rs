//! Waiting with a time limit: a condition is polled until it holds or the time is up.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The time between two polls of what costs nothing to look at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The time between two questions to an emulated machine: each takes seconds of its processors from what is waited for.
pub const MACHINE_INTERVAL: Duration = Duration::from_secs(5);

/// The time between two questions to a cluster on this host.
pub const CLUSTER_INTERVAL: Duration = Duration::from_secs(1);

/// The moment at which waiting ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Instant,
    limit: Duration,
    interval: Duration,
}

impl Deadline {
    /// The moment `limit` from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self { end: Instant::now() + limit, limit, interval: POLL_INTERVAL }
    }

    /// The same, with this time between two polls.
    #[must_use]
    pub fn every(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// The time that is left, `None` once it is up.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// The time limit in total.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Polls `look` until it returns something; an error of `look` ends the wait. `what` completes the sentence "… did
    /// not happen within N seconds".
    pub fn poll<T>(&self, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.left().is_none() {
                bail!("{what} did not happen within {} seconds", self.limit.as_secs());
            }
            thread::sleep(self.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_returns_what_it_found_and_names_what_is_missing() {
        let mut looks = 0;
        let deadline = Deadline::after(Duration::from_secs(5));
        let found = deadline.poll("three looks", || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.unwrap(), 3);
        let short = Deadline::after(Duration::from_millis(1));
        let error = short.poll::<()>("rain", || Ok(None)).unwrap_err();
        assert!(error.to_string().starts_with("rain did not happen"), "{error}");
    }
}
