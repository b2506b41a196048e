//! `installer pod-network`: keeps the routes to pods of other nodes, for its unit.

use std::path::{Path, PathBuf};

use anyhow::Result;

use base::command::SystemRunner;
use base::program::Context;
use cluster::pod_network;

/// Keep the routes to the pods of other nodes, until stopped.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct PodNetworkArgs {
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl PodNetworkArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        keep(&self.root, context)
    }
}

/// Keeps the pod network of the node at `root`; the journal has the lines that it prints.
fn keep(root: &Path, context: &Context) -> Result<()> {
    pod_network::run(root, &SystemRunner, &mut |line| context.tell("pod-network", line))
}
