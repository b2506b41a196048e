//! Whether the database answers: an outage is reported once, and while it lasts few requests try to connect.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The least time between two attempts to connect during an outage.
const PAUSE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Option<OngoingOutage>>);

#[derive(Debug)]
struct OngoingOutage {
    since: Instant,
    last_attempt: Instant,
    why: String,
}

impl Outage {
    /// A connection could not be made. Returns whether this is the begin of an outage.
    pub(super) fn begin(&self, why: &str) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        let since = state.as_ref().map_or(now, |outage| outage.since);
        let is_new = state.is_none();
        *state = Some(OngoingOutage { since, last_attempt: now, why: why.to_owned() });
        is_new
    }

    /// A connection was made. Returns how many seconds the outage lasted that this ends.
    pub(super) fn end(&self) -> Option<u64> {
        self.state().take().map(|outage| outage.since.elapsed().as_secs())
    }

    /// Why the last attempt failed, if it is too early for another one.
    pub(super) fn is_recent(&self) -> Option<String> {
        let state = self.state();
        let recent = state.as_ref().filter(|outage| outage.last_attempt.elapsed() < PAUSE);
        recent.map(|outage| outage.why.clone())
    }

    fn state(&self) -> MutexGuard<'_, Option<OngoingOutage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_at_its_begin_and_at_its_end() {
        let outage = Outage::default();
        assert_eq!((outage.is_recent(), outage.end()), (None, None));
        assert!(outage.begin("one") && !outage.begin("two"));
        assert_eq!(outage.is_recent().as_deref(), Some("two"));
        assert_eq!((outage.end(), outage.end()), (Some(0), None));
        assert_eq!(outage.is_recent(), None);
        assert!(outage.begin("three"));
    }
}
