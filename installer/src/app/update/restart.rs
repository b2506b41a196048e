//! The restart that an update or a reset ends with.

use anyhow::Result;

use crate::execute::ask_for;
use base::command::{Runner, SystemRunner};
use base::failure::{Class, Failure};
use base::program::Context;

/// Restarts the machine if it is wanted.
pub(super) fn restart(wanted: bool, context: &Context) -> Result<()> {
    if !wanted {
        return Ok(());
    }
    context.tell("update", "The machine restarts now.");
    reboot(&SystemRunner)
}

/// Asks the service manager to restart the machine.
pub(crate) fn reboot(runner: &dyn Runner) -> Result<()> {
    ask_for("reboot", runner).map_err(|error| {
        let hint = "Restart the machine by other means: the boot record is written.";
        Failure::new(Class::Unexpected, "asking for a restart")
            .because(anyhow::anyhow!("{error:#}"))
            .hint(hint)
            .into()
    })
}
