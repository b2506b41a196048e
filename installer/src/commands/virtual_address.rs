//! `installer virtual-address`: tells keepalived of other servers, for its unit.

use std::path::{Path, PathBuf};

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
        keep(&self.root, context)
    }
}

/// Keeps keepalived's configuration what the servers of the cluster ask for; the journal has the lines that it prints.
fn keep(root: &Path, context: &Context) -> Result<()> {
    servers::keep(root, &SystemRunner, &mut |line| context.tell("virtual-address", line))
}
