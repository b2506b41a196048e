//! Waits for the cluster to join: machines of a cluster may be switched on in any order, so that the one that creates it may be
//! the last, or fail and be installed again.
//!
//! Nothing is written meanwhile, and there is no time limit: all machines were started to become nodes.

use std::fmt;
use std::time::Duration;

use base::progress::Progress;

/// The step that lasts while an install waits.
pub const STEP: &str = "cluster-wait";
/// Between two attempts.
pub const PAUSE: Duration = Duration::from_secs(5);
/// How often the reason is reported again. The page of a fleet calls a machine silent that says nothing for two minutes.
const REMINDER: Duration = Duration::from_secs(60);

#[allow(missing_debug_implementations)]
pub struct ClusterWait<'a> {
    /// Why the cluster cannot take the node yet; `None` when all checks are to be made again.
    pub ask: &'a dyn Fn() -> Option<String>,
    /// The state of the machine that creates the cluster, by the fleet server, in whole sentences; `None` if it is unknown.
    pub creator: &'a dyn Fn() -> Option<String>,
    /// Passes this time.
    pub pause: &'a dyn Fn(Duration),
    /// The time that has passed since any moment.
    pub clock: &'a dyn Fn() -> Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct WaitCause {
    reason: String,
    creator: Option<String>,
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.creator {
            Some(creator) => write!(f, "{}. {creator}", self.reason.trim_end_matches('.')),
            None => f.write_str(&self.reason),
        }
    }
}

impl ClusterWait<'_> {
    /// Waits until there is no reason any more, with a step for each cause.
    pub fn wait(&self, reason: &str, progress: &Progress) {
        let begun = (self.clock)();
        let mut cause = WaitCause { reason: reason.to_owned(), creator: (self.creator)() };
        loop {
            let step = progress.step(STEP, format!("Waiting for the cluster: {cause}"), None);
            let next = self.next(&cause, begun, progress);
            step.done();
            let Some(next) = next else { return };
            cause = next;
        }
    }

    /// The next cause to wait, if there is one.
    fn next(&self, cause: &WaitCause, begun: Duration, progress: &Progress) -> Option<WaitCause> {
        let mut told = (self.clock)();
        loop {
            (self.pause)(PAUSE);
            let found = WaitCause { reason: (self.ask)()?, creator: (self.creator)() };
            if found != *cause {
                return Some(found);
            }
            let now = (self.clock)();
            if now >= told + REMINDER {
                told = now;
                let minutes = now.saturating_sub(begun).as_secs() / 60;
                let cause = cause.to_string();
                let text = format!(
                    "Waiting for the cluster for {minutes} min: {}. Nothing is written yet",
                    cause.trim_end_matches('.')
                );
                progress.note(STEP, text);
            }
        }
    }
}
