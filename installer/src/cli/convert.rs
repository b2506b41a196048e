//! `installer convert`: configurations of the reference product as configurations of ours.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::convert::Conversion;
use base::program::Context;

/// Make an install configuration of one of Harvester.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ConvertArgs {
    /// A configuration of any version, the file that a Harvester node keeps (`/oem/harvester.config`), or stages of its
    /// system; `-` is standard input.
    #[arg(value_name = "FILE or -")]
    file: PathBuf,
    /// The file for the configuration, which gets mode 0600 as it holds secrets; `-` is standard output. A file with other
    /// content stays as it is.
    #[arg(short, long, value_name = "FILE or -", default_value = "-")]
    output: PathBuf,
    /// FILE has a kernel command line, or is a script of iPXE, GRUB or PXELINUX that gives one.
    #[arg(long)]
    cmdline: bool,
}

const EXAMPLES: &str = "Examples:
  installer convert config-create.yaml -o node-1.yaml
  ssh rancher@192.0.2.41 sudo cat /oem/harvester.config | installer convert -
  installer convert --cmdline boot.ipxe";

impl ConvertArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { file, output, cmdline } = self;
        Conversion { file, output, cmdline }.run(context)
    }
}
