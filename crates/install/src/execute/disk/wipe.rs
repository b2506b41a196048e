//! Making the content of a disk unbootable, and the new partitions empty.

use std::ops::Range;

use anyhow::Result;

use super::device::{self, AlignedBuffer, BlockDevice};
use crate::plan::Partition;
use machine::inventory::{FoundPartition, Signature};

/// The bytes at either end of a disk or partition that hold every boot sector, table and superblock that firmware or a kernel
/// looks for.
const EDGE_BYTES: usize = 1 << 20;

/// Erases the old boot sector and table, each copy before the next, then both ends of each new partition, so that no old file
/// system reappears at the same place.
///
/// The first write is one sector, which a disk writes whole or not at all, and after it nothing boots: BIOS has its code there,
/// and without the protective MBR neither UEFI nor Linux accepts the table.
///
/// What `stays` returns true for is not touched.
pub(crate) fn wipe(
    device: &dyn BlockDevice,
    partitions: &[Partition],
    stays: &dyn Fn(&Partition) -> bool,
) -> Result<()> {
    let (kept, emptied): (Vec<_>, Vec<_>) = partitions.iter().partition(|partition| stays(partition));
    let end = device.size().get();
    // The end of the disk may reach into its last partition.
    let last = kept.iter().map(|partition| partition.end().get()).fold(end - EDGE_BYTES as u64, u64::max);
    let zeros = AlignedBuffer::new(EDGE_BYTES);
    let erase = |offset| device::write(device, offset, &zeros);
    device::write(device, 0, &zeros[..usize::try_from(device.sector().bytes())?])?;
    device::barrier(device)?;
    erase(0)?;
    device::barrier(device)?;
    self::erase(device, last..end)?;
    device::barrier(device)?;
    edges(device, emptied)?;
    device::barrier(device)
}

/// Erases both ends of each new partition. Does not flush.
pub(crate) fn edges<'a>(
    device: &dyn BlockDevice,
    partitions: impl IntoIterator<Item = &'a Partition>,
) -> Result<()> {
    let zeros = AlignedBuffer::new(EDGE_BYTES);
    for partition in partitions {
        device::write(device, partition.start.get(), &zeros)?;
        device::write(device, partition.end().get() - EDGE_BYTES as u64, &zeros)?;
    }
    Ok(())
}

/// Erases a part of at most [`EDGE_BYTES`] bytes, or nothing if the range is empty. Does not flush.
pub(crate) fn erase(device: &dyn BlockDevice, part: Range<u64>) -> Result<()> {
    match part.end.saturating_sub(part.start) {
        0 => Ok(()),
        length => device::write(device, part.start, &AlignedBuffer::new(usize::try_from(length)?)),
    }
}

/// What is erased around a signature: no sector is larger.
const SIGNATURE_BLOCK_BYTES: u64 = 4096;

/// Erases everything by which a disk without a part in the node is recognised. The primary table goes last and alone: while it is
/// there, a run that begins again still finds the disk.
pub(crate) fn clear(
    device: &dyn BlockDevice,
    signatures: &[Signature],
    partitions: &[FoundPartition],
) -> Result<()> {
    let (size, zeros) = (device.size().get(), AlignedBuffer::new(EDGE_BYTES));
    // A partition may be shorter than that, and one of a damaged table may lie beyond the end.
    let erase = |start: u64, length: u64| match length.min(EDGE_BYTES as u64).min(size.saturating_sub(start))
    {
        0 => Ok(()),
        length => device::write(device, start, &zeros[..usize::try_from(length)?]),
    };
    for partition in partitions {
        let length = partition.size.get().next_multiple_of(device.sector().bytes());
        let start = partition.start.get();
        erase(start, length)?;
        // Members of arrays have their superblock at the end (Documentation/admin-guide/md.rst, versions 0.90 and 1.0).
        let rest = length.saturating_sub(EDGE_BYTES as u64);
        erase(start + length - rest.min(EDGE_BYTES as u64), rest)?;
    }
    // Some signatures lie further inside or before the end of a partition, and are found without a table too.
    let within = partitions.iter().map(|partition| (partition.start.get(), &partition.signatures[..]));
    for (start, signatures) in [(0, signatures)].into_iter().chain(within) {
        for found in signatures {
            let place = start.saturating_add(found.offset) / SIGNATURE_BLOCK_BYTES * SIGNATURE_BLOCK_BYTES;
            // The first edge is erased at the end.
            if place >= EDGE_BYTES as u64 {
                erase(place, SIGNATURE_BLOCK_BYTES)?;
            }
        }
    }
    erase(size.saturating_sub(EDGE_BYTES as u64), EDGE_BYTES as u64)?;
    device::barrier(device)?;
    erase(0, EDGE_BYTES as u64)?;
    device::barrier(device)
}

/// Whether both ends are empty, where file systems, volumes and RAID members have their signatures. The header of an empty partition
/// table is ignored: one sector at each end, which begins with its signature. No other sector is, since some formats, such as LVM, have
/// only one there.
pub(crate) fn is_blank(device: &dyn BlockDevice) -> Result<bool> {
    /// No header of a table is longer, whatever the sector size.
    const HEADER_BYTES: usize = 512;
    let sector = usize::try_from(device.sector().bytes())?;
    let mut edge = AlignedBuffer::new(EDGE_BYTES);
    device::read(device, 0, &mut edge)?;
    // Boot code and an MBR table end with this signature; a RAID member's superblock at that place does not.
    if edge[HEADER_BYTES - 2..HEADER_BYTES] == [0x55, 0xaa] {
        edge[..HEADER_BYTES].fill(0);
    }
    forget_header(&mut edge[sector..sector + HEADER_BYTES]);
    let start_is_blank = edge.iter().all(|byte| *byte == 0);
    device::read(device, device.size().get() - EDGE_BYTES as u64, &mut edge)?;
    forget_header(&mut edge[EDGE_BYTES - sector..EDGE_BYTES - sector + HEADER_BYTES]);
    Ok(start_is_blank && edge.iter().all(|byte| *byte == 0))
}

/// Erases the header of a GPT (UEFI 2.10, 5.3.2), and nothing else.
fn forget_header(sector: &mut [u8]) {
    if sector.starts_with(b"EFI PART") {
        sector.fill(0);
    }
}
