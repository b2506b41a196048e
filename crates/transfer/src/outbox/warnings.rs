//! Warnings about a destination in the progress of the run.

use std::fmt;
use std::sync::Mutex;

use base::parallel::locked;
use base::progress::Progress;

/// Warns until the run ends: nothing may follow its last event.
pub struct DeliveryWarnings {
    progress: Progress,
    /// The name of the step that warnings are noted under.
    step: &'static str,
    silent: Mutex<bool>,
}

impl DeliveryWarnings {
    #[must_use]
    pub fn new(progress: Progress, step: &'static str) -> Self {
        Self { progress, step, silent: Mutex::new(false) }
    }

    pub fn warn(&self, text: &str) {
        // Held while the warning is noted, so that none is under way after `fall_silent`.
        let silent = locked(&self.silent);
        if !*silent {
            self.progress.note(self.step, format!("warning: {text}"));
        }
    }

    /// Suppresses all further warnings.
    pub fn fall_silent(&self) {
        *locked(&self.silent) = true;
    }
}

impl fmt::Debug for DeliveryWarnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeliveryWarnings").field("step", &self.step).finish_non_exhaustive()
    }
}
