//! `installer plan`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::app::gather::UnsignedArgs;
use crate::app::inventory_file::read_inventory;
use crate::app::{finished_nodes, gather};
use base::command::{Runner, SystemRunner};
use base::program::{Context, Format, print};
use machine::inventory::{Inventory, Roots};
use machine::live::is_live;
use machine::live::network_disks::connect_disks;
use machine::network_disks::connect::SystemPace;
use model::config::sources::Gathering;
use transfer::download::RetryPolicy;

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
    #[command(flatten)]
    unsigned: UnsignedArgs,
}

impl PlanArgs {
    /// Prints the plan, what happens to finished nodes on its disks, and on request where the values come from.
    pub(super) fn run(self, context: &Context) -> Result<()> {
        transfer::download::try_once();
        let command_line = self.cmdline.as_deref().map(gather::command_line).transpose()?;
        let gathering = Gathering {
            file: gather::file(self.config.as_deref())?,
            ignore_command_line: self.config.is_some() && command_line.is_none(),
            command_line,
            ..Gathering::default()
        };
        let media = gather::prepare(
            self.medium.as_deref(),
            gathering,
            self.unsigned.policy(),
            RetryPolicy::at_once(),
            &context.progress,
            &mut |_| {},
        )?;
        media.tell_warnings(&context.progress);
        if self.inventory.is_none() && is_live(&gather::kernel_command_line()?) {
            let (root, pace) = (Path::new("/"), &mut SystemPace::default());
            connect_disks((&media.combined.config, false), root, &SystemRunner, pace, &context.progress)?;
        }
        let (mut inventory, runner): (Inventory, Option<&dyn Runner>) = match self.inventory {
            None => (Inventory::scan(&Roots::default())?, Some(&SystemRunner)),
            Some(path) => (read_inventory(&path)?, None),
        };
        for note in inventory.join_paths() {
            context.progress.note("plan", format!("warning: {note}"));
        }
        let config = &media.combined.config;
        let present = finished_nodes::foretell(config, &inventory, &media, runner)?;
        let plan = media.plan(config, &inventory, uuid::Uuid::new_v4())?;
        let sources = self.show_sources.then_some(&media.combined);
        match context.format {
            Format::Text => {
                let listing = sources.map(|sources| format!("\nSources\n{}", sources.listing()));
                let warning = media.trust_warning().map(|warning| format!("\nwarning: {warning}\n"));
                let custom = media.customization.as_ref();
                let custom = custom.map(|custom| format!("\nCustomization\n  {}\n", custom.trust));
                let [listing, custom, warning] = [listing, custom, warning].map(Option::unwrap_or_default);
                print(&format!("{plan}{present}{listing}{custom}{warning}"))
            }
            Format::Json => {
                let mut json = serde_json::to_value(&plan)?;
                if let (Some(object), Some(sources)) = (json.as_object_mut(), sources) {
                    object.insert("sources".into(), sources.sources());
                }
                if let (Some(object), Some(custom)) = (json.as_object_mut(), &media.customization) {
                    object.insert("customization".into(), custom.trust.to_string().into());
                }
                if let Some(object) = json.as_object_mut().filter(|_| !present.is_empty()) {
                    object.insert("present".into(), present.trim().into());
                }
                print(&serde_json::to_string_pretty(&json)?)
            }
        }
    }
}
