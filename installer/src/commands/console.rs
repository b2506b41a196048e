//! `installer console`: the page of an installed node, on a terminal.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use crate::app::gather::kernel_command_line;
use crate::app::root_only;
use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::program::{Context, print};
use machine::node_release as release;
use model::boot::{BootParameters, Slot};
use node::recovery::RecoveryFacts;
use ui::node_page::look::ThisNode;
use ui::node_page::{NodePageEnd, run};
use ui::recovery_page::{self, RecoveryPageEnd};
use ui::toolkit::Console;

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
    /// Shows the page until the user leaves it, or wants to log in.
    pub(super) fn run(self, _: &Context) -> Result<()> {
        if !self.login {
            root_only::require("the node's console", "console")?;
            // This page is only for installed nodes.
            release::read("/".as_ref())?;
        }
        if let Some(installed) = BootParameters::parse(&kernel_command_line()?)?
            && installed.slot == Slot::Recovery
        {
            return self.run_recovery(&installed);
        }
        match run::run(self.terminal()?, Arc::new(ThisNode::default()), !self.login, self.idle())? {
            NodePageEnd::Quit => Ok(()),
            NodePageEnd::LogIn => log_in(),
        }
    }

    /// The page of the recovery system, and the commands that its keys are.
    fn run_recovery(&self, installed: &BootParameters) -> Result<()> {
        let look = || RecoveryFacts::gather(Path::new("/"), installed, &SystemRunner);
        loop {
            match recovery_page::run::run(self.terminal()?, &look, !self.login, self.idle())? {
                RecoveryPageEnd::Quit => return Ok(()),
                RecoveryPageEnd::LogIn => return log_in(),
                RecoveryPageEnd::Run(arguments) => {
                    print(&format!("installer {}", arguments.join(" ")))?;
                    let program = std::env::current_exe()?;
                    // The command prints its own errors.
                    Command::new(program).args(arguments).status()?;
                    print("Press Enter for the page of the recovery system.")?;
                    io::stdin().read_line(&mut String::new())?;
                }
            }
        }
    }

    fn idle(&self) -> Option<Duration> {
        self.idle_limit.map(|minutes| Duration::from_secs(u64::from(minutes) * 60))
    }

    fn terminal(&self) -> Result<Console> {
        // The name of a console's device says more about its capabilities than the environment of a unit.
        match nix::unistd::ttyname(io::stdin()) {
            Ok(path) if self.login => Console::open(&path),
            _ => Console::standard(),
        }
    }
}

/// Replaces this process by login(1), which asks for name and password. When it ends, the unit starts this program again.
fn log_in() -> Result<()> {
    print(
        "To administer this node, log in within a minute.\n\
         The page with actions:  sudo installer console\n",
    )?;
    let error = Command::new("/bin/login").exec();
    Err(Failure::new(Class::Unexpected, "starting /bin/login").because(error).into())
}
