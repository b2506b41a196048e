//! `installer inventory`.

use std::path::Path;

use anyhow::Result;

use crate::app::gather::kernel_command_line;
use base::command::SystemRunner;
use base::program::{Context, print};
use machine::inventory::{Inventory, Roots};
use machine::live::is_live;
use machine::live::network_disks::connect_disks;
use machine::network_disks::connect::SystemPace;
use model::config::InstallConfig;

/// Print the disks and network cards of this machine, and the drivers behind them, as JSON.
#[derive(Debug, clap::Args)]
pub(super) struct InventoryArgs {}

impl InventoryArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if is_live(&kernel_command_line()?) {
            // Those of the firmware; there is no document.
            let (config, pace) = (InstallConfig::default(), &mut SystemPace::default());
            connect_disks((&config, false), Path::new("/"), &SystemRunner, pace, &context.progress)?;
        }
        print(&serde_json::to_string_pretty(&Inventory::scan_with_hardware(&Roots::default())?)?)
    }
}
