//! Commands that only root can use.

use anyhow::Result;

use base::failure::{Class, Failure};

/// Fails for other users. `what` is the subject of the sentence, `command` what to start with `sudo`.
pub(crate) fn require(what: &str, command: &str) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let hint = format!("Start it with: sudo installer {command}");
    Err(Failure::new(Class::Invalid, format!("{what} needs root")).hint(hint).into())
}
