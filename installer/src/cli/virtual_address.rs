//! `installer virtual-address`: tells keepalived of other servers, for its unit.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::virtual_address::keep;
use base::program::Context;

/// Tell keepalived whether other servers could take the virtual address, until stopped.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct VirtualAddressArgs {
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl VirtualAddressArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        keep(&self.root, context)
    }
}
