//! `installer disk-image`.

use std::path::PathBuf;

use anyhow::Result;
use clap::builder::TypedValueParser as _;

use crate::app::disk_image::DiskImage;
use base::program::Context;
use base::size::ByteSize;
use model::config::Profile;

/// Write the disk of an installed node into a file, without a machine, by the plan of an install.
///
/// Machines start from copies of the file, on BIOS and on UEFI. Without --config the first start of each asks for its configuration,
/// or takes it from a volume or from kernel parameters. The file is sparse, and has the same bytes for the same medium, configuration
/// and size. Needs mkfs.ext4, debugfs and e2fsck, and no privileges.
#[derive(Debug, clap::Args)]
pub(super) struct DiskImageArgs {
    /// The install configuration of the node; disks of machines are not named in it. It is complete, as for an unattended install.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The medium to install from: an ISO, a drive that holds one, a directory with the content of one or with what a
    /// build wrote, the URL of an ISO or of a directory, or oci:DIRECTORY for a release in an OCI layout.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// The file.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// The size of the disk, such as 40Gi; by default the least that the profile allows.
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// The sizes of the partitions where there is no --config, whose install.profile says them; trial unless given.
    #[arg(long, conflicts_with = "config", value_parser = clap::builder::PossibleValuesParser::new(["production", "trial"])
        .map(|word| if word == "trial" { Profile::Trial } else { Profile::Production }))]
    profile: Option<Profile>,
}

impl DiskImageArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { config, medium, output, size, profile } = self;
        DiskImage { config, medium, output, size, profile }.run(context)
    }
}
