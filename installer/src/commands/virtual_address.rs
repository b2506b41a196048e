//! `installer virtual-address`: tells keepalived of other servers, for its unit.

use std::path::PathBuf;

use anyhow::Result;

use base::command::SystemRunner;
use base::program::Context;
use cluster::kubeadm::servers;

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
        servers::keep(&self.root, &SystemRunner, &mut |line| context.tell("virtual-address", line))
    }
}
