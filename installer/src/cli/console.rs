//! `installer console`: the page of an installed node, on a terminal.

use anyhow::Result;

use crate::app::console::ConsolePage;
use base::program::Context;

/// Show this node, its cluster and its state on the terminal, with actions for its administrator.
#[derive(Debug, clap::Args)]
pub(super) struct ConsoleArgs {
    /// Only show the page and offer a login. For the units of the consoles.
    #[arg(long)]
    login: bool,
    /// End after this many minutes without a key, so that an abandoned terminal returns to the login.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u16).range(1..))]
    idle_limit: Option<u16>,
}

impl ConsoleArgs {
    pub(super) fn run(self, _: &Context) -> Result<()> {
        ConsolePage { login: self.login, idle_minutes: self.idle_limit }.run()
    }
}
