//! `installer plan`.

use std::path::PathBuf;

use anyhow::Result;

use super::{Context, Format, media, print};
use crate::failure::{Class, Classify};
use crate::files::read_text;
use crate::inventory::{Inventory, Roots};

/// Print what an install would do. Touches nothing.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The install configuration; by default the one on the medium.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Disks and network cards, as `installer inventory` prints them; by default those of this machine.
    #[arg(long, value_name = "FILE")]
    inventory: Option<PathBuf>,
    /// The medium to install from: a directory or a URL.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let media = media::prepare(self.medium.as_deref(), self.config.as_deref())?;
        let inventory = match self.inventory {
            None => Inventory::scan(&Roots::default())?,
            Some(path) => {
                let what = || format!("reading the inventory {}", path.display());
                serde_json::from_str(&read_text(&path).class(Class::Invalid, what)?)
                    .class(Class::Invalid, what)?
            }
        };
        let plan = crate::plan::plan(&media.config, &inventory, &media.release, uuid::Uuid::new_v4())?;
        match context.format {
            Format::Text => print(&plan.to_string()),
            Format::Json => print(&serde_json::to_string_pretty(&plan)?),
        }
    }
}
