//! The command line: one file per command, each thin.

mod build;
mod builder_image;
mod check;
mod config_medium;
mod customize;
mod images;
mod keys;
mod lock;
mod prune;
mod pull;
mod push;
mod registries;
mod reproduce;
mod runner_image;
mod serve;
mod show;
mod tokens;

use std::path::PathBuf;

use anyhow::Result;
use base::program::{self, CommandLineExport, Context, GlobalOptions, print};
use clap::{CommandFactory, Parser, Subcommand};

use crate::definition::published_schema;
use crate::media::finished;

/// Builds NQRust Hypervisor media from an image definition.
#[derive(Debug, Parser)]
#[command(name = "iso-builder", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Build(build::BuildCommand),
    Check(check::CheckCommand),
    Lock(lock::LockCommand),
    Show(show::ShowCommand),
    BuilderImage(builder_image::BuilderImageCommand),
    RunnerImage(runner_image::RunnerImageCommand),
    Images(images::ImagesCommand),
    Inspect(finished::InspectCommand),
    Verify(finished::VerifyCommand),
    Customize(Box<customize::CustomizeCommand>),
    ConfigMedium(config_medium::ConfigMediumCommand),
    Push(push::PushCommand),
    Pull(pull::PullCommand),
    Prune(prune::PruneCommand),
    Serve(serve::ServeCommand),
    Tokens(tokens::TokensCommand),
    Reproduce(Box<reproduce::ReproduceCommand>),
    Keys(keys::KeysCommand),
    /// Print the JSON Schema of the image definition.
    Schema,
    #[command(flatten)]
    Export(CommandLineExport),
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
    let cli = match program::parse::<Cli>() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    if let Command::Step { request, outcome } = &cli.command {
        return crate::steps::main(request, outcome);
    }
    // Files that are built get the modes that they are given, whatever the user's umask.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    match cli.global.begin() {
        Ok(context) => context.conclude(cli.command.run(&context)),
        Err(code) => code,
    }
}

impl Command {
    fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Build(build) => build.run(context),
            Self::Check(check) => check.run(context),
            Self::Lock(lock) => lock.run(context),
            Self::Show(show) => show.run(context),
            Self::BuilderImage(image) => image.run(context),
            Self::RunnerImage(image) => image.run(context),
            Self::Images(images) => images.run(context),
            Self::Inspect(inspect) => inspect.run(context),
            Self::Verify(verify) => verify.run(context),
            Self::Customize(customize) => customize.run(context),
            Self::ConfigMedium(medium) => medium.run(context),
            Self::Push(push) => push.run(context),
            Self::Pull(pull) => pull.run(context),
            Self::Prune(prune) => prune.run(context),
            Self::Serve(serve) => serve.run(context),
            Self::Tokens(tokens) => tokens.run(context),
            Self::Reproduce(reproduce) => reproduce.run(context),
            Self::Keys(keys) => keys.run(context),
            Self::Schema => print(&serde_json::to_string_pretty(&published_schema())?),
            Self::Export(export) => export.run(Cli::command(), context),
            Self::Step { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        program::told_once(Cli::command()).debug_assert();
    }

    #[test]
    fn the_pages_show_commands_and_options_that_there_are() {
        testing::docs::commands_are_those_of(&Cli::command());
    }

    #[test]
    fn every_command_is_in_the_reference_and_has_a_man_page() {
        testing::command_tables::describe(&Cli::command());
    }
}
