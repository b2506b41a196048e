//! `installer boot`: run by a unit in the initrd of an installed node, not by people.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::boot::boot_node;
use base::program::Context;

/// Arguments of `installer boot`.
#[derive(Debug, clap::Args)]
pub(super) struct BootArgs {
    /// The root of the new system.
    #[arg(long, value_name = "DIR", default_value = "/sysroot")]
    root: PathBuf,
}

impl BootArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        boot_node(&self.root, context)
    }
}
