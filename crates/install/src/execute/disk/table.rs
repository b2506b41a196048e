//! The partition table: written by the `gpt` crate, and trusted only after reading both copies back.
//!
//! The crate packs partitions to the front of the table, accepts overlaps, assumes 512-byte sectors and leaves the protective MBR
//! to its caller. The plan's layout is contiguous and checked, the sector size is given, and [`verify`] compares everything with
//! the plan.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use formats::partition_table;
use formats::partition_table::growth::{TableWrite, growth};
use gpt::disk::LogicalBlockSize;
use gpt::header::HeaderError;
use gpt::mbr::{MBRError, ProtectiveMBR};
use gpt::partition::Partition as Entry;
use gpt::partition_types::Type;
use gpt::{GptConfig, GptDisk, GptError};
use uuid::Uuid;

use super::boot_code::NEXT_DEVICE;
use super::cache::BlockCache;
use super::device::{self, AlignedBuffer, BlockDevice};
use crate::plan::layout::ALIGNMENT;
use crate::plan::{Partition, SectorSize};
use base::failure::{Class, Classify};

/// Writes the protective MBR, with code that boots the next device, and both copies of the table. Does not flush.
pub(crate) fn write(device: &dyn BlockDevice, guid: Uuid, partitions: &[Partition]) -> Result<()> {
    let sector = device.sector();
    let written = (|| {
        let mut cached = BlockCache::new(device, 0, device.size().get());
        // A disk with more sectors than fit the field has the largest number there (UEFI 2.10, 5.2.3).
        let sectors = u32::try_from(device.size().get() / sector.bytes() - 1).unwrap_or(u32::MAX);
        let mut first = ProtectiveMBR::with_lb_size(sectors);
        first.set_bootcode(NEXT_DEVICE);
        first.overwrite_lba0(&mut cached).map_err(of_mbr)?;
        let mut disk =
            config(sector).writable(true).create_from_device(cached, Some(guid)).map_err(of_table)?;
        disk.update_partitions(entries(partitions, sector)?).map_err(of_table)?;
        disk.write().map_err(of_table)?.flush()?;
        anyhow::Ok(())
    })();
    written.class(Class::DiskIo, || "writing the partition table".into())
}

/// Makes the last of these partitions, which are those of the table but for its size, reach to the end of the disk. Each write is on
/// the disk before the next, and the first copy is whole after each of them. Boot code stays. Nothing is written where that is done.
pub(crate) fn extend(device: &dyn BlockDevice, partitions: &[Partition]) -> Result<()> {
    let (size, sector) = (device.size(), device.sector());
    let read = |offset, buffer: &mut [u8]| device.read_at(offset, buffer);
    let found = growth(&read, size, sector.bytes(), ALIGNMENT);
    for TableWrite { offset, bytes } in found.iter().flat_map(|growth| &growth.writes) {
        device::write(device, *offset, bytes)?;
        device::barrier(device)?;
    }
    let table = partition_table::read(&read, size, sector.bytes()).primary;
    let table = table.context("it has no whole partition table").class(Class::DiskIo, || {
        format!("reading the larger partition table of {} back", device.describe())
    })?;
    verify(device, table.guid, partitions)
}

/// The bytes of protective MBR, header and entries at the start of a disk. The second copy, at the end, is a sector shorter: it
/// has no MBR.
pub(crate) fn length(sector: SectorSize) -> u64 {
    /// 128 entries of 128 bytes (UEFI 2.10, 5.3.1).
    const ENTRIES: u64 = 128 * 128;
    2 * sector.bytes() + ENTRIES
}

/// Reads both copies and compares them with each other and with the plan.
pub(crate) fn verify(device: &dyn BlockDevice, guid: Uuid, partitions: &[Partition]) -> Result<()> {
    let sector = device.sector();
    let checked = (|| {
        let cached = BlockCache::new(device, 0, device.size().get());
        let disk = config(sector).only_valid_headers(true).open_from_device(cached).map_err(of_table)?;
        ensure!(*disk.guid() == guid, "it has the GUID {}", disk.guid());
        ensure!(*disk.partitions() == entries(partitions, sector)?, "its partitions are not the plan's");
        ensure!(array(device, &disk, true)? == array(device, &disk, false)?, "its two copies differ");
        let mut start = AlignedBuffer::new(usize::try_from(sector.bytes())?);
        device::read(device, 0, &mut start)?;
        ensure!(start[450] == 0xee && start[510..512] == [0x55, 0xaa], "its protective MBR is missing");
        Ok(())
    })();
    checked.class(Class::DiskIo, || format!("reading the new partition table of {} back", device.describe()))
}

/// The disk's error inside one of the crate's errors, which show its text and hide it from the chain of causes.
fn of_table(error: GptError) -> anyhow::Error {
    match error {
        GptError::Io(error) | GptError::Header(HeaderError::Io(error)) => error.into(),
        other => other.into(),
    }
}

fn of_mbr(error: MBRError) -> anyhow::Error {
    match error {
        MBRError::Io(error) => error.into(),
        other => other.into(),
    }
}

fn config(sector: SectorSize) -> GptConfig {
    let size = match sector {
        SectorSize::B512 => LogicalBlockSize::Lb512,
        SectorSize::B4096 => LogicalBlockSize::Lb4096,
    };
    GptConfig::new().logical_block_size(size)
}

/// The bytes of one copy of the array of entries.
fn array(device: &dyn BlockDevice, disk: &GptDisk<BlockCache<'_>>, primary: bool) -> Result<Vec<u8>> {
    let header = if primary { disk.primary_header() } else { disk.backup_header() };
    let header = header.map_err(|error| anyhow::anyhow!("{error}"))?;
    let sector = device.sector().bytes();
    let length = (u64::from(header.num_parts) * u64::from(header.part_size)).next_multiple_of(sector);
    let mut bytes = vec![0; usize::try_from(length)?];
    device::read(device, header.part_start * sector, &mut bytes)?;
    Ok(bytes)
}

fn entries(partitions: &[Partition], sector: SectorSize) -> Result<BTreeMap<u32, Entry>> {
    let entry = |partition: &Partition| {
        let guid = partition.name.type_guid().to_string().to_uppercase();
        let part_type_guid: Type =
            guid.parse().map_err(|error| anyhow::anyhow!("{guid} is no partition type: {error}"))?;
        let entry = Entry {
            part_type_guid,
            part_guid: partition.uuid,
            first_lba: partition.start.get() / sector.bytes(),
            last_lba: partition.end().get() / sector.bytes() - 1,
            flags: 0,
            name: partition.name.as_str().to_owned(),
        };
        Ok((partition.number, entry))
    };
    partitions.iter().map(entry).collect()
}
