//! `installer images`.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::images::check_images;
use base::program::Context;

/// Arguments of `installer images`.
#[derive(Debug, clap::Args)]
pub(super) struct ImagesArgs {
    #[command(subcommand)]
    command: ImagesCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ImagesCommand {
    /// Read every blob of the preloaded container images and compare it with its digest.
    Check {
        /// The directory that stands for `/`.
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
    },
}

impl ImagesArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let ImagesCommand::Check { root } = self.command;
        check_images(&root, context)
    }
}
