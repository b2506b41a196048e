//! `installer preflight`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Context, Format, media, print};
use crate::inventory::{Inventory, Roots};
use crate::preflight::join::version;
use crate::preflight::network::Offline;
use crate::preflight::{
    Intent, LINK_PATIENCE, MachineFacts, PreflightReport, SystemNetwork, inventory, report, run,
};
use base::command::SystemRunner;
use base::failure::{Class, Classify};
use base::files::read_text;
use base::progress::Progress;
use medium::sources::BOOT_MEDIUM;
use medium::sources::is_medium;
use model::config::sources::Gathering;
use model::config::{self, InstallConfig};

/// Check whether this machine is fit to become the node that a configuration describes. Writes nothing.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The install configuration; by default the one on the medium, and without one that of a production node.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Disks and network cards of another machine, as `installer inventory` prints them; what only the machine
    /// itself can tell could then not be checked.
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// List the checks and what a finding of each means.
    #[arg(long, conflicts_with_all = ["config", "inventory"])]
    list: bool,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.list {
            return match context.format {
                Format::Text => print(&report::list_text()),
                Format::Json => print(&serde_json::to_string_pretty(&report::list_json())?),
            };
        }
        let intent = Intent::of(&configuration(self.config.as_deref(), &context.progress)?);
        let report = match &self.inventory {
            None => check(intent)?,
            Some(path) => {
                let what = || format!("reading the inventory {}", path.display());
                let text = read_text(path).class(Class::Invalid, what)?;
                let inventory: Inventory = serde_json::from_str(&text).class(Class::Invalid, what)?;
                run(&MachineFacts::of_inventory(inventory), &intent, &Offline)
            }
        };
        match context.format {
            Format::Text => print(&report.to_text())?,
            Format::Json => print(&serde_json::to_string_pretty(&report)?)?,
        }
        Ok(report.verdict()?)
    }
}

/// The step of an install: tells every finding, and is an error where the install must not begin.
pub(super) fn step(config: &InstallConfig, not_before: u64, progress: &Progress) -> Result<PreflightReport> {
    let intent = Intent { not_before: Some(not_before), ..Intent::of(config) };
    progress.within("preflight", "Checking the machine", || {
        let report = check(intent)?;
        report.tell(progress);
        report.verdict_in_full()?;
        Ok(report)
    })
}

pub(super) fn check(mut intent: Intent) -> Result<PreflightReport> {
    if let Some(join) = &mut intent.join {
        join.version = version::of_program(&SystemRunner, join.distribution);
    }
    let roots = Roots::default();
    let facts = MachineFacts::scan(&roots, inventory(&roots, &intent, LINK_PATIENCE)?);
    Ok(run(&facts, &intent, &SystemNetwork::default()))
}

fn configuration(file: Option<&Path>, progress: &Progress) -> Result<InstallConfig> {
    match file {
        Some(file) => config::load(file),
        None if is_medium(Path::new(BOOT_MEDIUM)) => {
            let media = media::prepare(None, Gathering::default(), progress, &mut |_| {})?;
            Ok(media.combined.config)
        }
        None => Ok(InstallConfig::default()),
    }
}
