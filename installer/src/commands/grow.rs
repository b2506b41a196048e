//! `installer grow`: run by a unit on the first starts of a copied disk, not by people.

use std::path::Path;

use anyhow::Result;

use crate::app::gather::kernel_command_line;
use base::command::SystemRunner;
use base::program::Context;
use base::progress::Progress;
use install::execute::{Growth, OpenDisk, grow_filesystem};
use install::plan::target_of;
use machine::inventory::{Inventory, Roots};
use model::boot::{BootParameters, BootVolume};

#[derive(Debug, clap::Args)]
pub(super) struct GrowArgs {}

impl GrowArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        grow(&context.progress)
    }
}

/// Lets the last partition fill the disk that this node runs from, and its file system the partition.
fn grow(progress: &Progress) -> Result<()> {
    let Some(installed) = BootParameters::parse(&kernel_command_line()?)? else { return Ok(()) };
    let last = installed.data.unwrap_or(installed.persistent);
    let BootVolume::Partition(uuid) = last else { return Ok(()) };
    let inventory = Inventory::scan(&Roots::default())?;
    let ours = |disk: &&machine::inventory::Disk| {
        disk.partitions.iter().any(|found| found.entry.is_some_and(|entry| entry.uuid == uuid))
    };
    let Some(disk) = inventory.disks.iter().find(ours) else { return Ok(()) };
    if let Some(growth) = Growth::of(disk) {
        let text = format!("Growing the partition {} to {}", growth.name(), growth.size());
        progress.within("grow", text, || {
            growth.grow_partition(&OpenDisk::open_in_use(&target_of(disk)?)?, &SystemRunner)
        })?;
    }
    // A start that was cut off may have left the partition larger than its file system.
    grow_filesystem(Path::new(&last.device()), &SystemRunner)
}
