//! `make release`: from finished media and packages to the directory that a release is published as.
//!
//! Nothing is built here, and nothing is uploaded.

mod assemble;
mod asset;
mod changelog;
mod page;

use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use assemble::Inputs;
use base::files;
use changelog::Changelog;
use clap::{Parser, Subcommand};

/// The version of the programs, which media and changelog have to have, too.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prepares a release of the installer and the image builder.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the release notes of a version: its entry in the changelog.
    Notes {
        #[arg(default_value = VERSION)]
        version: String,
        #[arg(long, value_name = "FILE", default_value = "docs/changelog.md")]
        changelog: PathBuf,
    },
    /// Fill a directory with everything that is published, checksums and a page included.
    Assemble {
        /// The output directory of a build; can be repeated.
        #[arg(long, value_name = "DIR", required = true)]
        media: Vec<PathBuf>,
        /// The directory with Debian packages and archives of the programs.
        #[arg(long, value_name = "DIR")]
        packages: PathBuf,
        #[arg(long, value_name = "FILE", default_value = "docs/changelog.md")]
        changelog: PathBuf,
        /// The directory to fill, which has to be missing or empty.
        #[arg(short, long, value_name = "DIR")]
        output: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is gone, there is nowhere left to report to.
            let _ = writeln!(stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Notes { version, changelog } => {
            let text = files::read_text(&changelog)?;
            let notes = Changelog::parse(&text)?.notes(&version)?;
            stdout().write_all(notes.as_bytes()).context("printing the notes")
        }
        Command::Assemble { media, packages, changelog, output } => {
            let changelog = Changelog::parse(&files::read_text(&changelog)?)?;
            let assets =
                assemble::assemble(&Inputs { version: VERSION, media, packages, changelog }, &output)?;
            writeln!(stdout(), "{} files of release {VERSION} in {}", assets.len(), output.display())
                .context("printing what was made")
        }
    }
}
