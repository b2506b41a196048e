//! `installer plan`.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::dry_run::DryRun;
use base::program::Context;

/// Print what an install would do; changes nothing.
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// The install configuration, in place of those of the medium, of a volume, of install.config_url and of
    /// the kernel command line.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Disks and network cards, as `installer inventory` prints them; by default those of this machine.
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// The medium to install from: an ISO, a drive that holds one, a directory with the content of one or with what a
    /// build wrote, the URL of an ISO or of a directory, or oci:DIRECTORY for a release in an OCI layout.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// Kernel parameters, in place of those that this machine was started with; @FILE reads them from a file.
    #[arg(long, value_name = "TEXT or @FILE")]
    cmdline: Option<String>,
    /// Show where each value of the configuration comes from.
    #[arg(long)]
    show_sources: bool,
}

impl PlanArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { config, inventory, medium, cmdline, show_sources } = self;
        DryRun { config, inventory, medium, cmdline, show_sources }.run(context)
    }
}
