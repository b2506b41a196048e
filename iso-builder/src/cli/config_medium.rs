//! `iso-builder config-medium`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use base::failure::{Class, Classify, Failure};
use base::files::named;
use base::program::Context;

use super::customize::ConfigurationArguments;
use crate::media::customize::volume;
use crate::media::customize::{CustomizationSources, GatheredCustomization};

/// Make a small volume with configurations, for machines that start a medium as it was built.
///
/// The volume is FAT with the label NQRUST-CONF. Write it to a stick, or give it to a virtual machine as a disk; the
/// installer finds it by its label. Everything is checked first as `installer validate` does. Only the owner can read
/// the image (mode 0600), and the same configurations make the same bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConfigMediumCommand {
    /// Where the image is written; `-` is standard output.
    #[arg(short, long, value_name = "FILE or -")]
    output: PathBuf,
    #[command(flatten)]
    configurations: ConfigurationArguments,
}

const EXAMPLES: &str = "Examples:
  iso-builder config-medium -o node.img --config node.yaml
  iso-builder config-medium -o rack7.img --configs rack7/
  iso-builder config-medium -o east.img --cluster east.yaml
  dd if=rack7.img of=/dev/sdb bs=4M conv=fsync";

impl ConfigMediumCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let mut gathered: GatheredCustomization = CustomizationSources::from(self.configurations).read()?;
        if gathered.content.is_empty() {
            bail!(
                Failure::new(Class::Invalid, "there is no configuration for the volume")
                    .hint("Give --config, --config-for, --configs or --cluster.")
            );
        }
        let to_standard_output = named::is_standard(&self.output);
        if !to_standard_output && self.output.exists() && !self.output.is_file() {
            bail!(not_a_file(&self.output));
        }
        for warning in gathered.check(None)? {
            context.progress.warn("config-medium", &warning);
        }
        if !to_standard_output {
            return volume::make(&gathered.content, &self.output);
        }
        // Before anything is made.
        let mut output = named::standard_output("the image of a volume")?;
        let mut image = volume::image(&gathered.content)?;
        std::io::copy(&mut image, &mut output)
            .and_then(|_| output.flush())
            .class(Class::DiskIo, || "writing to standard output".into())
    }
}

fn not_a_file(output: &Path) -> Failure {
    Failure::new(Class::Invalid, format!("{} is not a file", output.display()))
        .hint("Write the volume to a file first, then copy it to the stick, for instance with dd.")
}
