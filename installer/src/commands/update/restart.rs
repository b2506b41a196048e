//! The restart that an update or a reset ends with.

use std::time::Duration;

use anyhow::Result;

use base::cancel::Cancel;
use base::command::{Runner, SystemRunner};
use base::failure::{Class, Failure};
use base::program::Context;
use install::execute::ask_for;

pub(super) fn restart(wanted: bool, context: &Context) -> Result<()> {
    if !wanted {
        return Ok(());
    }
    context.tell("update", "The machine restarts now.");
    reboot(&SystemRunner)
}

/// How long a restart may take to end this program.
const END: Duration = Duration::from_secs(15 * 60);

/// Waits until the requested restart ends this program. A pod that ended with success before that would complete its job although the
/// release has not been tried yet.
///
/// # Errors
/// It never returns without one.
pub(super) fn await_end(cancel: &Cancel) -> Result<()> {
    cancel.pause(END)?;
    let what = format!("the machine was asked to restart {} minutes ago, and still runs", END.as_secs() / 60);
    Err(Failure::new(Class::Unexpected, what)
        .hint("See `systemctl list-jobs`. The next restart, by whatever means, tries the release.")
        .into())
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

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_program_that_is_ended_by_the_restart_has_not_succeeded() {
        static ENDED: AtomicBool = AtomicBool::new(true);
        let error = await_end(&Cancel::new(&ENDED)).unwrap_err();
        assert_eq!(class_of(&error), Class::Cancelled);
    }
}
