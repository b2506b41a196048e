//! Stopping an install: a flag that signals set, and that the work checks wherever it is safe to stop.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use super::kernel_calls;
use base::failure::{Class, Classify, Failure};

/// Whether the install was asked to stop.
#[derive(Debug)]
pub struct Cancel(&'static AtomicBool);

impl Cancel {
    /// Set by SIGINT and SIGTERM, which no longer end the process.
    pub fn on_signals() -> Result<Self> {
        let flag = kernel_calls::catch_stop_signals();
        flag.map(Self).class(Class::Unexpected, || "installing signal handlers".into())
    }

    #[must_use]
    pub fn new(flag: &'static AtomicBool) -> Self {
        Self(flag)
    }

    pub fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::new(Class::Cancelled, "stopped by a signal"));
        }
        Ok(())
    }
}
