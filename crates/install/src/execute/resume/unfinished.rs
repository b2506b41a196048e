//! Whether a disk holds the beginning of the install that a plan is for. Only reads.
//!
//! The plan of a continued install is the one that would be made now, with the identity of the partition table that is there: all
//! other identities follow from it, so that what is on the disk is right for the new plan.

use anyhow::{Context, Result, bail};
use uuid::Uuid;

use super::journal::Journal;
use crate::execute::disk::device::BlockDevice;
use crate::execute::disk::host::{Host, MountAccess, with_mount};
use crate::plan::{Partition, PartitionName, Plan};
use base::progress::Progress;
use formats::partition_table::{self, PartitionTable};

/// The plan to carry out on `device`, the disk of `plan`: that plan, or if the disk holds an unfinished install of the same
/// content, the plan that continues it. `again` makes the same plan for another identity of the partition table.
pub fn take_up(
    plan: Plan,
    device: &dyn BlockDevice,
    host: &dyn Host,
    progress: &Progress,
    again: &dyn Fn(Uuid) -> Result<Plan>,
) -> Plan {
    let path = plan.disk.path.display();
    match unfinished(&plan, device, host, again) {
        Ok(None) => plan,
        Ok(Some(continued)) => {
            progress.note("run", format!("Continuing the install on {path} that was interrupted"));
            continued
        }
        Err(why) => {
            progress.note("run", format!("An earlier install on {path} is not continued: {why:#}"));
            plan
        }
    }
}

fn unfinished(
    plan: &Plan,
    device: &dyn BlockDevice,
    host: &dyn Host,
    again: &dyn Fn(Uuid) -> Result<Plan>,
) -> Result<Option<Plan>> {
    // The halves of a mirror may differ after an interrupted write, and a file system would see either of them.
    if plan.mirror.is_some() {
        return Ok(None);
    }
    let read = |offset: u64, buffer: &mut [u8]| device.read_at(offset, buffer);
    let tables = partition_table::read(&read, device.size(), device.sector().bytes());
    let Some(table) = tables.valid() else { return Ok(None) };
    let Some(config) = configuration_partition(table) else { return Ok(None) };
    let mut nodes = host.partition_nodes(&plan.disk, &[config])?;
    let node =
        nodes.remove(&PartitionName::Config).context("its configuration partition has no device node")?;
    let Some(journal) = with_mount(host, &node, MountAccess::Look, Journal::read)? else { return Ok(None) };
    let mut continued = again(table.guid)?;
    if journal.product != continued.product {
        bail!("it was an install of {}", journal.product);
    }
    if journal != Journal::of(&continued)? {
        bail!("it was for other partitions or other content");
    }
    continued.continued = true;
    Ok(Some(continued))
}

/// The configuration partition of a table that an install has made: its identity follows from that of the table.
fn configuration_partition(table: &PartitionTable) -> Option<Partition> {
    let name = PartitionName::Config;
    let uuid = name.uuid_in(table.guid);
    let entry = table.entries.iter().find(|entry| entry.uuid == uuid)?;
    Some(Partition { number: entry.number, name, uuid, start: entry.start, size: entry.size })
}
