//! `installer apply`: turns the node document into files.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::apply::apply_document;
use base::program::Context;

/// Arguments of `installer apply`.
#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// The node document; by default oem/node.yaml below the root.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl ApplyArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        apply_document(self.config, &self.root, context)
    }
}
