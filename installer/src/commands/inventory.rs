//! `installer inventory`.

use anyhow::Result;

use base::program::{Context, print};
use machine::inventory::{Inventory, Roots};

/// Print the disks and network cards of this machine, and the drivers behind them, as JSON.
#[derive(Debug, clap::Args)]
pub(super) struct InventoryArgs {}

impl InventoryArgs {
    pub(super) fn run(self, _: &Context) -> Result<()> {
        print(&serde_json::to_string_pretty(&Inventory::scan_with_hardware(&Roots::default())?)?)
    }
}
