//! `iso-builder builder-image`.

use std::path::PathBuf;

use anyhow::Result;
use base::program::Context;
use formats::oci::ImageReference;

use super::build::InputArguments;
use crate::pipeline::{self, BuilderImageOptions, InstallerChoice};

/// Make a container image of this builder, as an OCI image layout.
///
/// DEFINITION names the Debian packages (configs/builder/image.yaml); above them come this program and the installer. A
/// container of the image builds as an ordinary user, if it is allowed to make user namespaces.
#[derive(Debug, clap::Args)]
pub(super) struct BuilderImageCommand {
    /// The image definition; `-` is standard input.
    definition: PathBuf,
    #[command(flatten)]
    inputs: InputArguments,
    /// Directory for the layout. Its bill of materials is DIR.spdx.json.
    #[arg(short, long, value_name = "DIR", default_value = "dist/builder-image")]
    output: PathBuf,
    /// The image's name, with a tag; by default localhost/ID:VERSION of the definition.
    #[arg(long, value_name = "REFERENCE")]
    name: Option<ImageReference>,
    /// The builder to put into the image: a program of the image's architecture and of this builder's version; by default this program, or the
    /// one for that architecture beside it.
    #[arg(long, value_name = "FILE")]
    builder: Option<PathBuf>,
    /// The installer that the builder in the image puts into OS images; by default the one beside this builder.
    #[arg(long, value_name = "FILE", env = "NQRUST_INSTALLER")]
    installer: Option<PathBuf>,
}

impl BuilderImageCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let options = BuilderImageOptions {
            definition: self.definition,
            inputs: self.inputs.into(),
            output: self.output,
            name: self.name,
            builder: self.builder,
            installer: InstallerChoice::of(self.installer.into_iter().collect()),
        };
        let image = pipeline::builder_image(&options, &context.progress)?;
        context.show(&image, || image.to_string())
    }
}
