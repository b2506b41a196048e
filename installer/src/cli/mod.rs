//! The command line: one file per command, each with the arguments of the command as a struct with `fn run(self, context:
//! &Context) -> anyhow::Result<()>`, which calls one function of `app`.

mod apply;
mod boot;
mod console;
mod images;
mod install;
mod inventory;
mod kubeadm;
mod network;
mod plan;
mod pod_network;
mod preflight;
mod render;
mod status;
mod validate;
mod verify;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use base::completions;
use base::failure::Class;
use base::program::{Context, Format, print};
use base::progress::{Progress, ProgressStyle};
use model::cluster_file;
use model::config;

/// Installs the NQRust Hypervisor on a machine and keeps the node's configuration applied.
#[derive(Debug, Parser)]
#[command(name = "installer", version, max_term_width = 100)]
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
    Plan(plan::PlanArgs),
    Install(install::InstallArgs),
    Inventory(inventory::InventoryArgs),
    Preflight(preflight::PreflightArgs),
    Verify(verify::VerifyArgs),
    /// Check install configurations, or a cluster file; reports all mistakes at once.
    Validate(validate::ValidateArgs),
    Render(render::RenderArgs),
    /// Turn the node document into files below a root directory.
    Apply(apply::ApplyArgs),
    /// Show what this node is, which slot runs, and what is pending.
    Status(status::StatusArgs),
    Console(console::ConsoleArgs),
    Network(network::NetworkArgs),
    /// Check the container images that came with this node.
    Images(images::ImagesArgs),
    /// Mount and configure an installed node in its initrd.
    #[command(hide = true)]
    Boot(boot::BootArgs),
    Kubeadm(kubeadm::KubeadmArgs),
    PodNetwork(pod_network::PodNetworkArgs),
    /// Print the JSON Schema of the install configuration.
    Schema {
        /// Print the schema of the cluster file instead.
        #[arg(long)]
        cluster: bool,
    },
    /// Print the completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Parses the arguments of this process, runs the command, prints its error; returns the exit code.
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
            Self::Kubeadm(args) => args.run(context),
            Self::PodNetwork(args) => args.run(context),
            Self::Schema { cluster: false } => print(&config::json_schema()),
            Self::Schema { cluster: true } => print(&cluster_file::json_schema()),
            Self::Completions { shell } => print(&completions::script(&Cli::command(), shell)),
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
