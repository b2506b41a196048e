//! Stopping an install: a flag that signals set, and that the work checks wherever it is safe to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cancellation::{self, SignalClaim};
use crate::failure::{Class, Failure};

/// How often something that only waits asks whether to stop.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// A request to stop the install.
#[derive(Debug)]
pub struct Cancel {
    flags: Vec<&'static AtomicBool>,
    _signals: Option<SignalClaim>,
}

impl Cancel {
    /// Set by signals, which end the process no longer: the end of the install does.
    #[must_use]
    pub fn on_signals() -> Self {
        Self { flags: vec![cancellation::take_over().for_good()], _signals: None }
    }

    /// Set by `flag`, or by signals; one that comes during the install ends the process after it.
    #[must_use]
    pub fn on_signals_or(flag: &'static AtomicBool) -> Self {
        let signals = cancellation::take_over();
        Self { flags: vec![flag, signals.flag()], _signals: Some(signals) }
    }

    /// Set by `flag`.
    #[must_use]
    pub fn new(flag: &'static AtomicBool) -> Self {
        Self { flags: vec![flag], _signals: None }
    }

    pub fn check(&self) -> Result<(), Failure> {
        if self.flags.iter().any(|flag| flag.load(Ordering::Relaxed)) {
            return Err(Failure::new(Class::Cancelled, "this was stopped before it was done"));
        }
        Ok(())
    }

    /// Sleeps for so long, unless it is asked to stop.
    pub fn pause(&self, time: Duration) -> Result<(), Failure> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK_PAUSE));
        }
    }
}
