//! `installer bless`: run by a unit at every boot, not by people.

use anyhow::Result;

use base::program::Context;

/// Arguments of `installer bless`.
#[derive(Debug, clap::Args)]
pub(super) struct BlessArgs {}

impl BlessArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        crate::app::bless::bless(&context.progress)
    }
}
