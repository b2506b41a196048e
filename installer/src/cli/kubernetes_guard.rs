//! `installer kubernetes-guard`: asked by the units of Kubernetes before they start.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::kubernetes_guard::guard;
use base::program::Context;

/// Say whether the Kubernetes in its place may start on the data of this node, and remember that it does; exit code 3 if it is older
/// than the one that has worked on the data.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct KubernetesGuardArgs {
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl KubernetesGuardArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        guard(&self.root, context)
    }
}
