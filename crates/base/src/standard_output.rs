//! Guards standard output: with `--format json` it has exactly one JSON document, or JSON lines from a command that serves.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Class, Failure};

/// Set once something was written to standard output.
static WRITTEN: AtomicBool = AtomicBool::new(false);
/// Set if standard output is one JSON document.
static ONE_DOCUMENT: AtomicBool = AtomicBool::new(false);
/// Set if standard output is JSON lines.
static LINES: AtomicBool = AtomicBool::new(false);

/// Standard output for JSON lines.
pub(crate) struct StandardLines(io::Stdout);

/// Makes standard output JSON lines from here on.
pub(crate) fn lines() -> StandardLines {
    LINES.store(true, Ordering::SeqCst);
    StandardLines(io::stdout())
}

pub(crate) fn is_lines() -> bool {
    LINES.load(Ordering::SeqCst)
}

impl Write for StandardLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        note();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

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

/// Fails if standard output must be a JSON document, which `what` is not.
pub fn refuse_with_json(what: &str) -> Result<(), Failure> {
    if !ONE_DOCUMENT.load(Ordering::SeqCst) {
        return Ok(());
    }
    let text = format!("{what} cannot be written to standard output with --format json: it is not JSON");
    Err(Failure::new(Class::Invalid, text).hint("Name a file, or leave out --format json."))
}
