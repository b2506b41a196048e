//! `installer preflight`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::app::fitness;
use crate::app::gather::{UnsignedArgs, kernel_command_line};
use base::command::SystemRunner;
use base::program::Context;
use machine::live::is_live;
use machine::live::network_disks::connect_disks;
use machine::network_disks::connect::SystemPace;
use preflight::{PlannedNode, report};

/// Check whether this machine is fit to become the node that a configuration describes. Writes nothing.
#[derive(Debug, clap::Args)]
pub(super) struct PreflightArgs {
    /// The install configuration; by default the one on the medium, and without one that of a production node.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Disks and network cards of another machine, as `installer inventory` prints them; checks that need the machine
    /// itself cannot run then.
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// The medium that the node is installed from: its distribution of Kubernetes counts where the configuration names none.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// List the checks and the severity of their findings.
    #[arg(long, conflicts_with_all = ["config", "inventory", "medium"])]
    list: bool,
    #[command(flatten)]
    unsigned: UnsignedArgs,
}

impl PreflightArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.list {
            return context.show(&report::list_json(), report::list_text);
        }
        let (file, medium) = (self.config.as_deref(), self.medium.as_deref());
        let config = fitness::configuration(file, medium, self.unsigned.policy(), &context.progress)?;
        if self.inventory.is_none() && is_live(&kernel_command_line()?) {
            let (root, pace) = (Path::new("/"), &mut SystemPace::default());
            connect_disks((&config, false), root, &SystemRunner, pace, &context.progress)?;
        }
        let report = fitness::judge(PlannedNode::of(&config), self.inventory.as_deref())?;
        context.show(&report, || report.to_text())?;
        Ok(report.verdict()?)
    }
}
