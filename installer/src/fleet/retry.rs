//! How long and how often a server of a fleet is tried.

use std::time::Duration;

/// How long and how often to try.
#[derive(Clone, Copy, Debug)]
pub struct ReportRetry {
    /// For one answer.
    pub timeout: Duration,
    /// From the beginning of one request to that of the next.
    pub rate: Duration,
    /// After the first failure in a row; each further pause is twice as long, up to `longest`.
    pub pause: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// How long the end of a run waits for what is still to be told.
    pub last: Duration,
}

impl Default for ReportRetry {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            timeout: seconds(10),
            rate: seconds(1),
            pause: seconds(1),
            longest: seconds(15),
            last: seconds(5),
        }
    }
}
