//! `installer update start` and `rollback`: which slot the next restart takes.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use base::failure::{Class, Failure};
use base::program::Context;
use model::boot::Slot;
use node::update::{Rollback, UpdateLock, UpdatedNode};

use super::report::tell_fleet;
use super::restart::restart;

/// Starts a slot once.
pub(crate) fn start(slot: Slot, reboot: bool, context: &Context) -> Result<()> {
    let _lock = UpdateLock::take(Path::new("/"), Duration::ZERO)?;
    let mut node = UpdatedNode::read(Path::new("/"))?;
    let Some(release) = node.slots.slot(slot).release() else {
        let what =
            format!("slot {slot} has no commit mark, or its boot volume is damaged: nothing starts from it");
        return Err(Failure::new(Class::Hardware, what).hint("See `installer update status`.").into());
    };
    node.start_once(slot)?;
    context.tell(
        "update",
        &format!("Slot {slot} starts at the next restart, once: version {}.", release.version),
    );
    restart(reboot, context)
}

/// Goes back to the release before.
pub(crate) fn roll_back(once: bool, reboot: bool, wait: Duration, context: &Context) -> Result<()> {
    let _lock = UpdateLock::take(Path::new("/"), wait)?;
    let mut node = UpdatedNode::read(Path::new("/"))?;
    match node.roll_back(once)? {
        Rollback::CalledOff => {
            tell_fleet(&node, &context.progress);
            context.tell(
                "update",
                "The staged release will not be tried. To try it after all: installer update apply",
            );
            Ok(())
        }
        Rollback::To(slot) => {
            let version = node.slots.slot(slot.into()).release().map(|release| release.version.clone());
            tell_fleet(&node, &context.progress);
            let until = if once { "for one start" } else { "from the next restart on" };
            context.tell(
                "update",
                &format!("Slot {slot} starts {until}: version {}.", version.unwrap_or_default()),
            );
            restart(reboot, context)
        }
    }
}
