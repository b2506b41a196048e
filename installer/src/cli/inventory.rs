//! `installer inventory`.

use anyhow::Result;

use super::{Context, print};
use crate::inventory::{Inventory, Roots};

/// Print the disks and network cards of this machine as JSON.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

impl Args {
    pub(super) fn run(self, _: &Context) -> Result<()> {
        print(&serde_json::to_string_pretty(&Inventory::scan(&Roots::default())?)?)
    }
}
