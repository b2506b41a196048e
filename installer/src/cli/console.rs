//! `installer console`: the page of an installed node, on a terminal.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use super::{Context, print};
use crate::node::release;
use crate::node_console::look::ThisNode;
use crate::node_console::{End, run};
use crate::terminal::Console;
use base::failure::{Class, Failure};

/// Show this node, its cluster and how it does on the terminal, with what its administrator may do.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Nobody has logged in on this terminal yet: only show, and let somebody log in. For the units of the consoles.
    #[arg(long)]
    login: bool,
    /// End after so many minutes without a key, so that a terminal somebody has left can be logged in on again.
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u16).range(1..))]
    idle_limit: Option<u16>,
}

impl Args {
    pub(super) fn run(self, _: &Context) -> Result<()> {
        if !self.login {
            if !nix::unistd::geteuid().is_root() {
                return Err(Failure::new(Class::Invalid, "the node's console is for root")
                    .hint("Start it with: sudo installer console")
                    .into());
            }
            // Elsewhere than on a node there is nothing to show.
            release::read("/".as_ref())?;
        }
        let idle = self.idle_limit.map(|minutes| Duration::from_secs(u64::from(minutes) * 60));
        match run::run(self.terminal()?, Arc::new(ThisNode::default()), !self.login, idle)? {
            End::Quit => Ok(()),
            End::LogIn => log_in(),
        }
    }

    fn terminal(&self) -> Result<Console> {
        // What a console's device can show is known better than from the environment of a unit.
        match nix::unistd::ttyname(io::stdin()) {
            Ok(path) if self.login => Console::open(&path),
            _ => Console::standard(),
        }
    }
}

/// Becomes login(1), which asks for name and password and knows what to do with them. When it ends, the unit starts
/// this program again.
fn log_in() -> Result<()> {
    print(
        "To administer this node, log in within a minute.\n\
         The page with actions:  sudo installer console\n",
    )?;
    let error = Command::new("/bin/login").exec();
    Err(Failure::new(Class::Unexpected, "starting /bin/login").because(error).into())
}
