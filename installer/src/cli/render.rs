//! `installer render`: the install configurations of the nodes of a cluster file.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::render::{show, stream, write};
use base::files::named;
use base::program::Context;
use model::cluster_file;

/// Write the install configuration of each node of a cluster file.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("where").required(true))]
pub(super) struct RenderArgs {
    /// The cluster file.
    #[arg(long, value_name = "FILE")]
    cluster: PathBuf,
    /// The directory for the documents, HOSTNAME.yaml each; they hold secrets and get mode 0600. `-` writes all of them to
    /// standard output, one behind the other.
    #[arg(short, long, value_name = "DIR or -", group = "where")]
    output: Option<PathBuf>,
    /// Print the configuration of one node for reading, its secrets hidden.
    #[arg(long, value_name = "NAME", group = "where")]
    node: Option<String>,
}

impl RenderArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let cluster = cluster_file::load(&self.cluster)?;
        for warning in &cluster.warnings {
            // Its first line is enough; the excerpt is for `validate`.
            context.progress.warn("cluster", warning.to_string().lines().next().unwrap_or_default());
        }
        match (&self.output, &self.node) {
            (Some(output), _) if named::is_standard(output) => stream(&cluster, context.format),
            (Some(directory), _) => write(&cluster, directory, context.format),
            (None, name) => show(&cluster, name.as_deref().unwrap_or_default(), context.format),
        }
    }
}
