//! How long a boot has until it has to be good, and how long it has to be so.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// All required checks have to begin to hold within this time.
    pub budget: Duration,
    /// They have to hold this long without a break.
    pub hold: Duration,
    /// Between two observations.
    pub pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { budget: seconds(15 * 60), hold: seconds(60), pause: seconds(5) }
    }
}
