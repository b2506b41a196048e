//! `iso-builder runner-image`.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use base::program::Context;
use formats::oci::ImageReference;

use crate::pipeline::{self, InstallerChoice};

/// Make the container image by which a controller of a cluster updates its nodes, as an OCI image layout.
///
/// It has the installer alone. An image definition preloads it with `images.preload: [{layout: DIR}]`; the plans in
/// configs/rollouts/plans.yaml run it.
#[derive(Debug, clap::Args)]
pub(super) struct RunnerImageCommand {
    /// Directory for the layout.
    #[arg(short, long, value_name = "DIR", default_value = "dist/runner-image")]
    output: PathBuf,
    /// The image's name, with a tag.
    #[arg(long, value_name = "REFERENCE", default_value_t = pipeline::runner_image_name())]
    name: String,
    /// The installer in the image; by default the one beside this builder.
    #[arg(long, value_name = "FILE", env = "NQRUST_INSTALLER")]
    installer: Option<PathBuf>,
}

impl RunnerImageCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let name: ImageReference = self.name.parse().context("reading the name of the image")?;
        let image = pipeline::runner_image(
            &InstallerChoice::of(self.installer.into_iter().collect()),
            &name,
            &self.output,
        )?;
        context.show(&image, || image.to_string())
    }
}
