//! `installer kubeadm`: makes this node a member of its cluster, for its unit.

use std::path::PathBuf;

use anyhow::Result;

use base::command::SystemRunner;
use base::program::Context;
use cluster::kubeadm;

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
        kubeadm::run(&self.root, &SystemRunner, &mut |line| context.tell("kubeadm", line))
    }
}
