//! `installer verify`.

use anyhow::Result;

use crate::app::verify::verify_medium;
use base::program::Context;

/// Compare a medium with its state when it was built, and name every difference: every byte of an ISO, every payload
/// of a directory or a server.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// The medium: a directory or a URL; by default the one that this system runs from.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// Show progress and failures on every console of the machine too.
    #[arg(long)]
    consoles: bool,
}

impl VerifyArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        verify_medium(self.medium.as_deref(), self.consoles, context)
    }
}
