//! What code that knows nothing of a command line tells among the progress of the one that runs.
//!
//! It is told wherever it happens; so this is one switch for the process.

use std::sync::OnceLock;

use crate::progress::Progress;

struct NoteSink {
    progress: Progress,
    details: bool,
}

static SHOWN: OnceLock<NoteSink> = OnceLock::new();

/// From now on notes are shown there; details only where `details` says so (`--verbose`).
pub fn show_on(progress: &Progress, details: bool) {
    let _ = SHOWN.set(NoteSink { progress: progress.clone(), details });
}

/// Tells something about `step` that whoever waits wants to know. Never a secret.
pub fn tell(step: &str, note: impl FnOnce() -> String) {
    if let Some(shown) = SHOWN.get() {
        shown.progress.note(step, note());
    }
}

/// Tells what only somebody who looks for a cause wants to know: programs that are started, what comes from the cache. Never a
/// secret.
pub fn detail(step: &str, detail: impl FnOnce() -> String) {
    if SHOWN.get().is_some_and(|shown| shown.details) {
        tell(step, detail);
    }
}
