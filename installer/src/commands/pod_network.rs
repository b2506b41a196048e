//! `installer pod-network`: keeps the routes to pods of other nodes, for its unit.

use std::path::PathBuf;

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
        pod_network::run(&self.root, &SystemRunner, &mut |line| context.tell("pod-network", line))
    }
}
