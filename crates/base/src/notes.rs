//! What `--verbose` shows among the progress: programs that are started, what comes from the cache, attempts at downloads.
//!
//! It is told wherever it happens, by code that knows nothing of a command line; so this is one switch for the process.

use std::sync::OnceLock;

use crate::progress::Progress;

static SHOWN: OnceLock<Progress> = OnceLock::new();

/// From now on details are shown there.
pub fn show_on(progress: &Progress) {
    let _ = SHOWN.set(progress.clone());
}

/// Tells a detail about `step`. Never a secret.
pub fn tell(step: &str, detail: impl FnOnce() -> String) {
    if let Some(progress) = SHOWN.get() {
        progress.note(step, detail());
    }
}
