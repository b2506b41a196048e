//! `installer grow`: run by a unit on the first starts of a copied disk, not by people.

use anyhow::Result;

use base::program::Context;

/// Arguments of `installer grow`.
#[derive(Debug, clap::Args)]
pub(super) struct GrowArgs {}

impl GrowArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        crate::app::grow::grow(&context.progress)
    }
}
