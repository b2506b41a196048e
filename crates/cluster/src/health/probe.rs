//! The seam between the judge and the machine.

use std::time::Duration;

use super::check::CheckResult;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// In the order of [`CHECKS`](super::check::CHECKS).
    pub results: Vec<CheckResult>,
    /// Whether this node is known to be the only server of its cluster.
    pub alone: bool,
    /// The version of the running release.
    pub release: Option<String>,
    /// The running slot.
    pub slot: Option<String>,
}

/// What health needs of the machine. Tests have a double.
pub trait HealthProbe {
    /// Makes every check once, in bounded time.
    fn look(&self) -> Observation;
    /// Monotonic time.
    fn elapsed(&self) -> Duration;
    fn pause(&self, time: Duration);
}
