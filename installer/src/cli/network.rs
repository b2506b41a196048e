//! `installer network`: the networks of a running node, changed on trial.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::network_trial::{NetworkAction, NetworkTrial, act};
use base::program::Context;
use node::network_trial::TrialSpan;

/// Show the networks of this node, or change them on trial: unless they are confirmed in time, the old ones come
/// back.
#[derive(Debug, clap::Args)]
pub(super) struct NetworkArgs {
    #[command(subcommand)]
    command: NetworkCommand,
}

#[derive(Debug, clap::Subcommand)]
enum NetworkCommand {
    /// Print the networks of the node document as YAML, to be changed and tried, and whether a trial is running.
    Show,
    /// Set up other networks on trial.
    Try(TryArgs),
    /// Keep the networks on trial: they become part of the node document.
    Confirm,
    /// Bring the old networks back now.
    Revert {
        /// Only if the trial has reached its time limit; for the timer of a trial.
        #[arg(long, hide = true)]
        expired: bool,
    },
    /// Find the network cards that the node document names; for the unit that runs before the network.
    #[command(hide = true)]
    Settle,
    /// Set up the networks on trial; for the service of a trial.
    #[command(hide = true)]
    SetUp,
}

#[derive(Debug, clap::Args)]
struct TryArgs {
    /// A document with any of `install.management_interface`, `install.networks` and `os.dns_nameservers`, each of
    /// which replaces that of the node document; `-` reads it from standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Time until the old networks come back unless the new ones are confirmed; 30 to 3600.
    #[arg(long, value_name = "SECONDS", default_value_t = TrialSpan::USUAL)]
    seconds: TrialSpan,
    /// Change the address of this node even if it is a server of its cluster.
    #[arg(long)]
    accept_address_change: bool,
}

impl NetworkArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let action = match self.command {
            NetworkCommand::Show => NetworkAction::Show,
            NetworkCommand::Try(TryArgs { file, seconds, accept_address_change }) => {
                NetworkAction::Try(NetworkTrial { file, seconds, accept_address_change })
            }
            NetworkCommand::Confirm => NetworkAction::Confirm,
            NetworkCommand::Revert { expired } => NetworkAction::Revert { expired },
            NetworkCommand::Settle => NetworkAction::Settle,
            NetworkCommand::SetUp => NetworkAction::SetUp,
        };
        act(action, context)
    }
}
