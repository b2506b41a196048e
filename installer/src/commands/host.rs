//! `installer host`: run by units of an installed node, not by people.

use std::path::Path;

use anyhow::Result;

use base::command::SystemRunner;
use base::program::Context;
use node::host::{self, StartStage};

/// Set up the machine as `os.host` of the node document says.
#[derive(Debug, clap::Args)]
pub(super) struct HostArgs {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Debug, clap::Subcommand)]
enum HostCommand {
    /// Before drivers are loaded for the devices of the machine.
    Prepare,
    /// Once drivers have their devices.
    Settle,
}

impl HostArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let stage = match self.command {
            HostCommand::Prepare => StartStage::BeforeDrivers,
            HostCommand::Settle => StartStage::WithDrivers,
        };
        let notes = host::set_up(Path::new("/"), stage, &SystemRunner)?;
        let done = "Nothing to set up: the machine is as the document says.".to_owned();
        context.tell("host", &if notes.is_empty() { done } else { notes.join("\n") });
        Ok(())
    }
}
