//! `installer status`: the status of this node.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::status::StatusQuery;
use base::program::Context;

/// Arguments of `installer status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// The directory that stands for `/`; stages are shown only for `/` itself.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Wait until the node is ready in its cluster, and print each change of its stages.
    #[arg(long, conflicts_with = "root")]
    wait: bool,
    /// Wait no longer than this; exit with 7 if the node is not ready then.
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    limit: Option<u64>,
    /// Record the stages for the consoles and later calls; for the unit that runs at every boot.
    #[arg(long, requires = "wait", hide = true)]
    record: bool,
}

impl StatusArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { root, wait, limit, record } = self;
        StatusQuery { root, wait, limit, record }.run(context)
    }
}
