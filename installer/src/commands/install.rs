//! `installer install`.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::run::RunOptions;
use base::program::Context;

/// Install on this machine.
#[derive(Debug, clap::Args)]
pub(super) struct InstallArgs {
    /// The install configuration, in place of those of the medium, of a volume and of install.config_url.
    /// Kernel parameters have precedence.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The medium to install from: an ISO, a drive that holds one, a directory with the content of one or with what a
    /// build wrote, the URL of an ISO or of a directory, or oci:DIRECTORY for a release in an OCI layout.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// Restart or power off at the end, as the configuration says.
    #[arg(long)]
    reboot: bool,
    /// Show progress and failures on every console of the machine too.
    #[arg(long)]
    consoles: bool,
    /// Report the install to this fleet server, in place of the one in the kernel parameter nqrust.report.
    #[arg(long, value_name = "URL")]
    report: Option<String>,
    /// Keep the answers that are given on the console, as a configuration that installs the next machine unattended.
    /// It contains secrets, and gets mode 0600.
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Ask all questions and show the plan, but write nothing.
    #[arg(long, conflicts_with_all = ["reboot", "report"])]
    rehearse: bool,
    /// Rehearse on the disks and network cards of another machine, as `installer inventory` prints them.
    #[arg(long, value_name = "FILE", requires = "rehearse")]
    inventory: Option<PathBuf>,
}

impl InstallArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { config, medium, reboot, consoles, report, answers, rehearse, inventory } = self;
        RunOptions { config, medium, reboot, consoles, report, answers, rehearse, inventory }.run(context)
    }
}
