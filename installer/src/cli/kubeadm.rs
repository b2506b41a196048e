//! `installer kubeadm`: makes this node a member of its cluster, for its unit.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::kubeadm::join;
use base::program::Context;

/// Make this node a member of the cluster that its document names, by kubeadm; goes on where it was cut off.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct KubeadmArgs {
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl KubeadmArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        join(&self.root, context)
    }
}
