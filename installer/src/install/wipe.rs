//! Making what is on a disk unbootable, and the new partitions empty.

use anyhow::Result;

use super::device::{self, AlignedBuffer, BlockDevice};
use crate::plan::Partition;

/// This much at either end of a disk or partition holds every boot sector, table and superblock that firmware
/// or a kernel looks for.
const EDGE: usize = 1 << 20;

/// Erases the old boot sector and table, each copy before the next, then both ends of each new partition, so
/// that no old file system at the same place comes alive.
pub(super) fn wipe(device: &dyn BlockDevice, partitions: &[Partition]) -> Result<()> {
    let zeros = AlignedBuffer::new(EDGE);
    let erase = |offset| device::write(device, offset, &zeros);
    erase(0)?;
    device::barrier(device)?;
    erase(device.size().get() - EDGE as u64)?;
    device::barrier(device)?;
    for partition in partitions {
        erase(partition.start.get())?;
        erase(partition.end().get() - EDGE as u64)?;
    }
    device::barrier(device)
}
