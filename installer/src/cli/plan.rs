//! `installer plan`.

use std::path::PathBuf;

use anyhow::Result;

use super::{Context, Format, finished, media, print};
use crate::inventory::{Inventory, Roots};
use base::command::{Runner, SystemRunner};
use base::failure::{Class, Classify};
use base::files::read_text;
use model::config::sources::Gathering;

/// Print what an install would do. Touches nothing.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The install configuration, in place of those of the medium, of a volume, of install.config_url and of
    /// the kernel command line.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Disks and network cards, as `installer inventory` prints them; by default those of this machine.
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// The medium to install from: a directory or a URL.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// Kernel parameters, in place of those that this machine was started with; @FILE reads them from a file.
    #[arg(long, value_name = "TEXT or @FILE")]
    cmdline: Option<String>,
    /// Tell for each value of the configuration where it came from.
    #[arg(long)]
    show_sources: bool,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let command_line = self.cmdline.as_deref().map(media::command_line).transpose()?;
        let gathering = Gathering {
            file: media::file(self.config.as_deref())?,
            ignore_command_line: self.config.is_some() && command_line.is_none(),
            command_line,
            ..Gathering::default()
        };
        let media = media::prepare(self.medium.as_deref(), gathering, &context.progress, &mut |_| {})?;
        media.tell_warnings(&context.progress);
        let (inventory, runner): (Inventory, Option<&dyn Runner>) = match self.inventory {
            None => (Inventory::scan(&Roots::default())?, Some(&SystemRunner)),
            Some(path) => {
                let what = || format!("reading the inventory {}", path.display());
                let text = read_text(&path).class(Class::Invalid, what)?;
                (serde_json::from_str(&text).class(Class::Invalid, what)?, None)
            }
        };
        let config = &media.combined.config;
        let present = finished::foretell(config, &inventory, &media, runner)?;
        let plan = crate::plan::plan(config, &inventory, &media.release, uuid::Uuid::new_v4())?;
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
