//! The command line: one file for each command, with its arguments as a struct that has `fn run(self, context: &Context) ->
//! anyhow::Result<()>`, and what it does and prints.

mod apply;
mod bless;
mod boot;
mod console;
mod convert;
mod crash;
mod disk;
mod disk_image;
mod first_start;
mod grow;
mod health;
mod host;
mod images;
mod install;
mod inventory;
mod kubeadm;
mod kubernetes_guard;
mod network;
mod plan;
mod pod_network;
mod preflight;
mod recovery;
mod render;
mod rollout;
mod root;
mod status;
mod update;
mod validate;
mod verify;
mod virtual_address;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use base::program::{self, CommandLineExport, Context, GlobalOptions, print};
use model::cluster_file;
use model::config;

/// Installs the NQRust Hypervisor on a machine and keeps the node's configuration applied.
#[derive(Debug, Parser)]
#[command(name = "installer", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Plan(plan::PlanArgs),
    Install(install::InstallArgs),
    Disk(disk::DiskArgs),
    DiskImage(disk_image::DiskImageArgs),
    Inventory(inventory::InventoryArgs),
    Preflight(preflight::PreflightArgs),
    Verify(verify::VerifyArgs),
    /// Check install configurations, or a cluster file; reports all mistakes at once.
    Validate(validate::ValidateArgs),
    Render(render::RenderArgs),
    Convert(convert::ConvertArgs),
    /// Turn the node document into files below a root directory.
    Apply(apply::ApplyArgs),
    /// Show what this node is, which slot runs, and what is pending.
    Status(status::StatusArgs),
    /// Check whether this node is good, as it has to be after an update.
    Health(health::HealthArgs),
    Update(update::UpdateArgs),
    Rollout(rollout::RolloutArgs),
    Console(console::ConsoleArgs),
    Network(network::NetworkArgs),
    /// Check the container images that came with this node.
    Images(images::ImagesArgs),
    /// Mount and configure an installed node in its initrd.
    #[command(hide = true)]
    Boot(boot::BootArgs),
    /// Report to the boot loader that this boot is good.
    #[command(hide = true)]
    Bless(bless::BlessArgs),
    FirstStart(first_start::FirstStartArgs),
    Recovery(recovery::RecoveryArgs),
    Root(root::RootArgs),
    /// Let the disk of a node that was copied from an image fill its machine's disk.
    #[command(hide = true)]
    Grow(grow::GrowArgs),
    /// Set up the machine as `os.host` of the node document says.
    #[command(hide = true)]
    Host(host::HostArgs),
    /// Load the kernel that starts where the running one crashes, or write its dump.
    #[command(hide = true)]
    Crash(crash::CrashArgs),
    Kubeadm(kubeadm::KubeadmArgs),
    KubernetesGuard(kubernetes_guard::KubernetesGuardArgs),
    PodNetwork(pod_network::PodNetworkArgs),
    VirtualAddress(virtual_address::VirtualAddressArgs),
    /// Print the JSON Schema of the install configuration.
    Schema {
        /// Print the schema of the cluster file instead.
        #[arg(long)]
        cluster: bool,
    },
    #[command(flatten)]
    Export(CommandLineExport),
}

/// Parses the arguments of this process, runs the command, prints its error; returns the exit code.
#[must_use]
pub fn main() -> u8 {
    let cli = match program::parse::<Cli>() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match cli.global.begin() {
        Ok(context) => context.conclude(cli.command.run(&context)),
        Err(code) => code,
    }
}

impl Command {
    fn run(self, context: &Context) -> Result<()> {
        match self {
            Self::Plan(args) => args.run(context),
            Self::Install(args) => args.run(context),
            Self::Disk(args) => args.run(context),
            Self::DiskImage(args) => args.run(context),
            Self::Inventory(args) => args.run(context),
            Self::Preflight(args) => args.run(context),
            Self::Verify(args) => args.run(context),
            Self::Validate(command) => command.run(context),
            Self::Render(args) => args.run(context),
            Self::Convert(args) => args.run(context),
            Self::Apply(command) => command.run(context),
            Self::Status(command) => command.run(context),
            Self::Health(args) => args.run(context),
            Self::Update(args) => args.run(context),
            Self::Rollout(args) => args.run(context),
            Self::Console(args) => args.run(context),
            Self::Network(args) => args.run(context),
            Self::Images(command) => command.run(context),
            Self::Boot(command) => command.run(context),
            Self::Bless(args) => args.run(context),
            Self::FirstStart(args) => args.run(context),
            Self::Recovery(args) => args.run(context),
            Self::Root(args) => args.run(context),
            Self::Grow(args) => args.run(context),
            Self::Host(args) => args.run(context),
            Self::Crash(args) => args.run(context),
            Self::Kubeadm(args) => args.run(context),
            Self::KubernetesGuard(args) => args.run(context),
            Self::PodNetwork(args) => args.run(context),
            Self::VirtualAddress(args) => args.run(context),
            Self::Schema { cluster: false } => print(&config::json_schema()),
            Self::Schema { cluster: true } => print(&cluster_file::json_schema()),
            Self::Export(export) => export.run(Cli::command(), context),
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
