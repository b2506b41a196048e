//! What every command of both programs gets: how to print, where progress goes, and how the program ends.
//!
//! The command lines of both programs make one [`Context`] and hand it down; whoever has something for standard output
//! calls [`print()`].

use std::io::Write;

use anyhow::Result;
use clap::ValueEnum;

use crate::failure;
use crate::progress::Progress;

/// The format of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// What every command gets.
#[derive(Debug)]
pub struct Context {
    /// The format of what is printed.
    pub format: Format,
    pub progress: Progress,
}

impl Context {
    /// Ends a command: the last event of its progress, the report of a failure. Returns the exit code.
    #[must_use]
    pub fn conclude(&self, result: Result<()>) -> u8 {
        self.progress.conclude(result.as_ref().err().map_or(0, |error| failure::class_of(error).exit_code()));
        match result {
            Ok(()) => 0,
            Err(error) => failure::report(&error, &mut std::io::stderr()),
        }
    }
}

/// Prints text to standard output with a final newline. A reader that has gone away is not an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout();
    let result = out.write_all(text.trim_end().as_bytes()).and_then(|()| out.write_all(b"\n"));
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
