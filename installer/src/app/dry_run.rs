//! What an install would do, for `installer plan`. Changes nothing.

use std::path::PathBuf;

use anyhow::Result;

use super::inventory_file::read_inventory;
use super::{finished_nodes, gather};
use base::command::{Runner, SystemRunner};
use base::program::{Context, Format, print};
use machine::inventory::{Inventory, Roots};
use model::config::sources::Gathering;
use transfer::download::RetryPolicy;

pub(crate) struct DryRun {
    pub(crate) config: Option<PathBuf>,
    pub(crate) inventory: Option<PathBuf>,
    pub(crate) medium: Option<String>,
    pub(crate) cmdline: Option<String>,
    pub(crate) show_sources: bool,
}

impl DryRun {
    /// Prints the plan, what happens to finished nodes on its disks, and on request where the values come from.
    pub(crate) fn run(self, context: &Context) -> Result<()> {
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
            RetryPolicy::at_once(),
            &context.progress,
            &mut |_| {},
        )?;
        media.tell_warnings(&context.progress);
        let (mut inventory, runner): (Inventory, Option<&dyn Runner>) = match self.inventory {
            None => (Inventory::scan(&Roots::default())?, Some(&SystemRunner)),
            Some(path) => (read_inventory(&path)?, None),
        };
        for note in inventory.join_paths() {
            context.progress.note("plan", format!("warning: {note}"));
        }
        let config = &media.combined.config;
        let present = finished_nodes::foretell(config, &inventory, &media, runner)?;
        let plan = install::plan::plan(config, &inventory, &media.release, uuid::Uuid::new_v4())?;
        let sources = self.show_sources.then_some(&media.combined);
        match context.format {
            Format::Text => {
                let listing = sources.map(|sources| format!("\nSources\n{}", sources.listing()));
                print(&format!("{plan}{present}{}", listing.unwrap_or_default()))
            }
            Format::Json => {
                let mut json = serde_json::to_value(&plan)?;
                if let (Some(object), Some(sources)) = (json.as_object_mut(), sources) {
                    object.insert("sources".into(), sources.sources());
                }
                if let Some(object) = json.as_object_mut().filter(|_| !present.is_empty()) {
                    object.insert("present".into(), present.trim().into());
                }
                print(&serde_json::to_string_pretty(&json)?)
            }
        }
    }
}
