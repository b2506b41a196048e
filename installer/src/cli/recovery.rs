//! `installer recovery`: run by a unit of the recovery system, not by people.

use anyhow::Result;

use base::program::Context;

/// Finish a reset of this node, or try its slots again when nobody is at the recovery system.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct RecoveryArgs {}

impl RecoveryArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        crate::app::recovery::recover(&context.progress)
    }
}
