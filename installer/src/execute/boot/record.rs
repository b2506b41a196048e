//! The boot record on the EFI system partition: read, and written in place, without a change to the file system around it.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::read_volume::FatReader;
use crate::execute::disk::device;
use crate::execute::kernel_calls;
use base::failure::{Class, Classify, Failure};
use model::boot::record::{BLOCK_BYTES, BootRecord, Condition, GENERATION_MAX};

/// From the root of the EFI system partition.
const PATH: &str = "grub/grubenv";

/// All of a record is in the first sector of its file; the rest never changes unless it was damaged.
const SECTOR_BYTES: usize = 512;

/// Changes the boot record on the EFI system partition `esp`, a device node, and returns it. What was damaged is repaired. Writes
/// nothing if nothing changes.
///
/// # Errors
/// [`Class::DiskIo`] if the file cannot be found or written; nothing is known of the record then.
pub fn change_record(esp: &Path, change: impl FnOnce(&mut BootRecord)) -> Result<BootRecord> {
    let changed = (|| {
        let mut disk =
            OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_DSYNC).open(esp)?;
        let length = disk.seek(SeekFrom::End(0))?;
        kernel_calls::drop_buffers(&disk)?;
        let (block, place) = FatReader::new(&disk, 0, length).placed(PATH)?;
        ensure!(block.len() == BLOCK_BYTES, "{PATH} has {} bytes, not {BLOCK_BYTES}", block.len());
        let (before, condition) = BootRecord::read(&block);
        let mut record = before.clone();
        change(&mut record);
        if record == before && condition == Condition::Whole {
            return Ok(record);
        }
        record.generation = record.generation.wrapping_add(1).min(GENERATION_MAX);
        write(&disk, place, &block, &record.to_block())?;
        anyhow::Ok(record)
    })();
    changed.class(Class::DiskIo, || format!("changing the boot record on {}", esp.display()))
}

/// Writes the sectors that differ, the one with the record last, and reads them back.
fn write(disk: &File, place: u64, old: &[u8], new: &[u8; BLOCK_BYTES]) -> Result<()> {
    let sectors = [SECTOR_BYTES..BLOCK_BYTES, 0..SECTOR_BYTES];
    for sector in sectors.into_iter().filter(|sector| old[sector.clone()] != new[sector.clone()]) {
        disk.write_all_at(&new[sector.clone()], place + sector.start as u64).context("writing it")?;
        disk.sync_all().context("flushing it")?;
    }
    kernel_calls::drop_buffers(disk)?;
    let mut found = [0; BLOCK_BYTES];
    disk.read_exact_at(&mut found, place).context("reading it back")?;
    if found == *new {
        return Ok(());
    }
    Err(Failure::new(Class::DiskIo, "it does not read back as written").hint(device::UNRELIABLE).into())
}
