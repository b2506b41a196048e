//! Waits for the cluster to join: machines of a cluster may be switched on in any order, so that the one that creates it may be
//! the last, or fail and be installed again.
//!
//! Nothing is written meanwhile, and there is no limit of time: whoever started all machines wants all of them as nodes.

use std::time::Duration;

use base::progress::Progress;

/// The step that lasts while an install waits.
pub const STEP: &str = "cluster-wait";
/// Between two attempts.
pub const PAUSE: Duration = Duration::from_secs(5);
/// How often the reason is reported again. The page of a fleet calls a machine silent that says nothing for two minutes.
const REMINDER: Duration = Duration::from_secs(60);

/// What a wait asks for.
#[allow(missing_debug_implementations)]
pub struct ClusterWait<'a> {
    /// Why the cluster cannot take the node yet; none once asking it in full is worth it.
    pub ask: &'a dyn Fn() -> Option<String>,
    /// Passes this time.
    pub pause: &'a dyn Fn(Duration),
    /// The time that has passed since any moment.
    pub clock: &'a dyn Fn() -> Duration,
}

impl ClusterWait<'_> {
    /// Waits until there is no reason any more, with a step for each reason.
    pub fn wait(&self, reason: &str, progress: &Progress) {
        let begun = (self.clock)();
        let mut reason = reason.to_owned();
        loop {
            let step = progress.step(STEP, format!("Waiting for the cluster: {reason}"), None);
            let next = self.next(&reason, begun, progress);
            step.done();
            let Some(next) = next else { return };
            reason = next;
        }
    }

    /// The next reason to wait, if there is one.
    fn next(&self, reason: &str, begun: Duration, progress: &Progress) -> Option<String> {
        let mut told = (self.clock)();
        loop {
            (self.pause)(PAUSE);
            let found = (self.ask)()?;
            if found != reason {
                return Some(found);
            }
            let now = (self.clock)();
            if now >= told + REMINDER {
                told = now;
                let minutes = now.saturating_sub(begun).as_secs() / 60;
                let text =
                    format!("Waiting for the cluster for {minutes} min: {reason}. Nothing is written yet");
                progress.note(STEP, text);
            }
        }
    }
}
