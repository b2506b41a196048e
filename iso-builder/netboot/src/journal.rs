//! The log of the server: each line has its time, so that it can be read as a journal wherever standard error goes.

use base::progress::Progress;

use super::moment::Moment;

/// The step of the server in progress events.
pub const STEP: &str = "serve";

/// Writes a line about something that happened now.
pub fn write(progress: &Progress, text: &str) {
    progress.note(STEP, format!("{} {text}", Moment::now()));
}
