//! How long programs take that have to succeed.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use nqrust_tests::programs;

/// Seconds until the program ends, within `limit`.
pub(crate) fn seconds_of(command: &mut Command, limit: Duration) -> Result<f64> {
    let begun = Instant::now();
    let ended = programs::run(command, limit)?;
    let seconds = begun.elapsed().as_secs_f64();
    ended.success(&command.get_program().to_string_lossy())?;
    Ok(seconds)
}
