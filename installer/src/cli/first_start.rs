//! `installer first-start`: run by a unit of a node that has no document yet, not by people.

use anyhow::Result;

use crate::app::first_start::first_start;
use base::program::Context;

/// Make a machine that started from a disk image the node that its sources say, or ask on its consoles.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct FirstStartArgs {
    /// Ask and show progress on every console of the machine.
    #[arg(long)]
    consoles: bool,
}

impl FirstStartArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        first_start(self.consoles, context)
    }
}
