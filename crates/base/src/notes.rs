//! Notes in the progress of the running command, from code that has no access to it.
//!
//! They can come from anywhere, so there is one sink for the process.

use std::sync::OnceLock;

use crate::progress::Progress;

struct NoteSink {
    progress: Progress,
    details: bool,
}

static SHOWN: OnceLock<NoteSink> = OnceLock::new();

/// Shows notes in `progress` from now on; details only with `details` (`--verbose`).
pub fn show_on(progress: &Progress, details: bool) {
    let _ = SHOWN.set(NoteSink { progress: progress.clone(), details });
}

/// Notes something about `step` for the user. Never a secret.
pub fn tell(step: &str, note: impl FnOnce() -> String) {
    if let Some(shown) = SHOWN.get() {
        shown.progress.note(step, note());
    }
}

/// Notes a detail for troubleshooting, such as programs that are started and cache hits. Never a secret.
pub fn detail(step: &str, detail: impl FnOnce() -> String) {
    if SHOWN.get().is_some_and(|shown| shown.details) {
        tell(step, detail);
    }
}
