//! The command line: one file per command, each thin. A command's arguments are a struct with
//! `fn run(self, context: &Context) -> anyhow::Result<()>`.

mod apply;
mod audience;
mod boot;
mod console;
mod consoles;
mod customized;
mod finished;
mod install;
mod interactive;
mod inventory;
mod media;
mod network;
mod plan;
mod preflight;
mod record;
mod registries;
mod render;
mod status;
mod validate;
mod verify;

use std::io::Write;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use base::failure::{self, Class};
use base::progress::{Progress, Style};
use model::cluster_file;
use model::config;

/// Installs the NQRust Hypervisor on a machine and keeps the node's configuration applied.
#[derive(Debug, Parser)]
#[command(name = "installer", version, max_term_width = 100)]
struct Cli {
    /// How to print what is for reading.
    #[arg(long, global = true, value_enum, default_value_t)]
    format: Format,
    /// How to show progress.
    #[arg(long, global = true, value_enum, default_value_t)]
    progress: Style,
    #[command(subcommand)]
    command: Command,
}

/// How to print what is for reading.
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
    /// How to print what is for reading.
    pub format: Format,
    /// Where progress goes.
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

#[derive(Debug, Subcommand)]
enum Command {
    Plan(plan::Args),
    Install(install::Args),
    Inventory(inventory::Args),
    Preflight(preflight::Args),
    Verify(verify::Args),
    /// Check install configurations, or a cluster file; tells all mistakes at once.
    Validate(validate::Validate),
    Render(render::Args),
    /// Turn the node document into files below a root directory.
    Apply(apply::Apply),
    /// Say what this node is, which slot runs, and what is pending.
    Status(status::ShowStatus),
    Console(console::Args),
    Network(network::Args),
    /// The container images that came with this node.
    Images(status::Images),
    /// Mount and configure an installed node in its initrd.
    #[command(hide = true)]
    Boot(boot::Boot),
    /// Print the JSON Schema of the install configuration.
    Schema {
        /// That of the cluster file instead.
        #[arg(long)]
        cluster: bool,
    },
    /// Print the completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
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
    let context = Context { format: cli.format, progress: Progress::new(vec![cli.progress.sink()]) };
    let result = cli.command.run(&context);
    context.conclude(result)
}

impl Command {
    fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Plan(args) => args.run(context),
            Self::Install(args) => args.run(context),
            Self::Inventory(args) => args.run(context),
            Self::Preflight(args) => args.run(context),
            Self::Verify(args) => args.run(context),
            Self::Validate(command) => command.run(context),
            Self::Render(args) => args.run(context),
            Self::Apply(command) => command.run(context),
            Self::Status(command) => command.run(context),
            Self::Console(args) => args.run(context),
            Self::Network(args) => args.run(context),
            Self::Images(command) => command.run(context),
            Self::Boot(command) => command.run(context),
            Self::Schema { cluster: false } => print(&config::json_schema()),
            Self::Schema { cluster: true } => print(&cluster_file::json_schema()),
            Self::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "installer", &mut script);
                print(&String::from_utf8_lossy(&script))
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
