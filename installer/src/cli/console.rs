//! `installer console`: the page of an installed node, on a terminal.

use anyhow::Result;

use crate::app::console::ConsolePage;
use base::program::Context;

/// Show this node, its cluster and how it does on the terminal, with what its administrator may do.
#[derive(Debug, clap::Args)]
pub(super) struct ConsoleArgs {
    /// Nobody has logged in on this terminal yet: only show, and let somebody log in. For the units of the consoles.
    #[arg(long)]
    login: bool,
    /// End after so many minutes without a key, so that a terminal somebody has left can be logged in on again.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u16).range(1..))]
    idle_limit: Option<u16>,
}

impl ConsoleArgs {
    pub(super) fn run(self, _: &Context) -> Result<()> {
        ConsolePage { login: self.login, idle_minutes: self.idle_limit }.run()
    }
}
