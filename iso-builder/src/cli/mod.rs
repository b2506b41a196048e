//! The command line: one file per command, each thin.

mod build;
mod config_medium;
mod customize;
mod images;
mod lock;
mod prune;
mod serve;

use std::path::PathBuf;

use anyhow::Result;
use base::completions;
use base::failure::Class;
use base::program::{Context, Format, print};
use base::progress::{Progress, ProgressStyle};
use clap::{CommandFactory, Parser, Subcommand};

use crate::definition::Definition;
use crate::finished;

/// Builds NQRust Hypervisor media from an image definition.
#[derive(Debug, Parser)]
#[command(name = "iso-builder", version, max_term_width = 100)]
struct Cli {
    /// The format of what is printed.
    #[arg(long, global = true, value_enum, default_value_t)]
    format: Format,
    /// How to show progress.
    #[arg(long, global = true, value_enum, default_value_t)]
    progress: ProgressStyle,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(build::BuildCommand),
    Lock(lock::LockCommand),
    Images(images::ImagesCommand),
    Inspect(finished::Inspect),
    Verify(finished::Verify),
    Customize(Box<customize::CustomizeCommand>),
    ConfigMedium(config_medium::ConfigMediumCommand),
    Prune(prune::PruneCommand),
    Serve(serve::ServeCommand),
    /// Print the JSON Schema of the image definition.
    Schema,
    /// Print the completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Do one piece of work in the sandbox.
    #[command(hide = true)]
    Step {
        /// The file that says what to do.
        request: PathBuf,
        /// The file for a failure.
        outcome: PathBuf,
    },
}

/// Parses the arguments of this process, runs the command, reports a failure; returns the exit code.
#[must_use]
pub fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Class::Invalid.exit_code() } else { 0 };
        }
    };
    if let Command::Step { request, outcome } = &cli.command {
        return crate::steps::main(request, outcome);
    }
    // Files that are built get the modes that they are given, whatever the user's umask.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let context = Context { format: cli.format, progress: Progress::new(vec![cli.progress.sink()]) };
    let result = cli.command.run(&context);
    context.conclude(result)
}

impl Command {
    fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Build(build) => build.run(context),
            Self::Lock(lock) => lock.run(context),
            Self::Images(images) => images.run(context),
            Self::Inspect(inspect) => inspect.run(context),
            Self::Verify(verify) => verify.run(context),
            Self::Customize(customize) => customize.run(context),
            Self::ConfigMedium(medium) => medium.run(context),
            Self::Prune(prune) => prune.run(context),
            Self::Serve(serve) => serve.run(context),
            Self::Schema => print(&serde_json::to_string_pretty(&schemars::schema_for!(Definition))?),
            Self::Completions { shell } => print(&completions::script(&Cli::command(), shell)),
            Self::Step { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
