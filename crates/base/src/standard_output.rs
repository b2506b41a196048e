//! Who may write to standard output: with `--format json` it is one JSON document and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Class, Failure};

/// Whether something was written to standard output.
static WRITTEN: AtomicBool = AtomicBool::new(false);
/// Whether standard output is one JSON document.
static ONE_DOCUMENT: AtomicBool = AtomicBool::new(false);

/// Keeps standard output for one JSON document from here on.
pub(crate) fn keep_for_document() {
    ONE_DOCUMENT.store(true, Ordering::SeqCst);
}

/// Notes that something is written there.
pub(crate) fn note() {
    WRITTEN.store(true, Ordering::SeqCst);
}

pub(crate) fn is_written() -> bool {
    WRITTEN.load(Ordering::SeqCst)
}

/// Refuses `what`, which is no JSON document, where standard output is one.
pub fn refuse_with_json(what: &str) -> Result<(), Failure> {
    if !ONE_DOCUMENT.load(Ordering::SeqCst) {
        return Ok(());
    }
    let text =
        format!("{what} cannot be written to standard output with --format json: it is no JSON document");
    Err(Failure::new(Class::Invalid, text).hint("Name a file, or leave out --format json."))
}
