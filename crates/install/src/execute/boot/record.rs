//! The boot record on the EFI system partitions: read, and written in place, without a change to the file system around it.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow, ensure};

use super::read_volume::FatReader;
use crate::execute::disk::device;
use crate::execute::kernel_calls;
use base::failure::{Class, Classify, Failure};
use model::boot::record::{BLOCK_BYTES, BootRecord, GENERATION_MAX, RecordCondition};

/// From the root of the EFI system partition.
const PATH: &str = "grub/grubenv";

/// All of a record is in the first sector of its file; the rest never changes unless it was damaged.
const SECTOR_BYTES: usize = 512;

#[derive(Debug)]
pub struct ChangedRecord {
    pub record: BootRecord,
    /// Why it could not be written on some disks, whose old records stay in force.
    pub unwritten: Vec<Error>,
}

/// Changes the boot record of a node on its EFI system partitions, device nodes of which the first is the one that GRUB was loaded
/// from. The record of the first disk that has a whole one counts; all disks get it. What was damaged is repaired. A disk on which
/// nothing changes is not written.
///
/// # Errors
/// [`Class::DiskIo`] if it can be written on no disk.
pub fn change_record(esps: &[PathBuf], change: impl FnOnce(&mut BootRecord)) -> Result<ChangedRecord> {
    let mut unwritten = Vec::new();
    let mut opened = Vec::new();
    for esp in esps {
        match RecordFile::open(esp).class(Class::DiskIo, || changing(esp)) {
            Ok(file) => opened.push((esp, file)),
            Err(error) => unwritten.push(error),
        }
    }
    let whole = |(_, file): &&(_, RecordFile)| file.condition == RecordCondition::Whole;
    let Some((_, known)) = opened.iter().find(whole).or(opened.first()) else {
        return Err(unwritten.into_iter().next().unwrap_or_else(|| anyhow!("there is no boot record")));
    };
    let mut record = known.record.clone();
    change(&mut record);
    let mut written = None;
    for (esp, mut file) in opened {
        match file.set(&record).class(Class::DiskIo, || changing(esp)) {
            Ok(()) => drop(written.get_or_insert(file.record)),
            Err(error) => unwritten.push(error),
        }
    }
    match written {
        Some(record) => Ok(ChangedRecord { record, unwritten }),
        None => Err(unwritten.swap_remove(0)),
    }
}

fn changing(esp: &Path) -> String {
    format!("changing the boot record on {}", esp.display())
}

/// The boot record on one disk.
struct RecordFile {
    disk: File,
    block: Vec<u8>,
    /// Where on the disk the block begins, in bytes.
    place: u64,
    record: BootRecord,
    condition: RecordCondition,
}

impl RecordFile {
    fn open(esp: &Path) -> Result<Self> {
        let (disk, (block, place)) = open_placed(esp, PATH)?;
        ensure!(block.len() == BLOCK_BYTES, "{PATH} has {} bytes, not {BLOCK_BYTES}", block.len());
        let (record, condition) = BootRecord::read(&block);
        Ok(Self { disk, block, place, record, condition })
    }

    /// Writes `record`, with the generation of this disk.
    fn set(&mut self, record: &BootRecord) -> Result<()> {
        let mut new = BootRecord { generation: self.record.generation, ..record.clone() };
        if new == self.record && self.condition == RecordCondition::Whole {
            return Ok(());
        }
        new.generation = new.generation.wrapping_add(1).min(GENERATION_MAX);
        write(&self.disk, self.place, &self.block, &new.to_block())?;
        self.record = new;
        Ok(())
    }
}

/// Opens an EFI system partition for writing, and reads a file of it that is no longer than a cluster: its content, and where on the
/// disk it begins, in bytes.
pub(super) fn open_placed(esp: &Path, path: &str) -> Result<(File, (Vec<u8>, u64))> {
    let mut disk = OpenOptions::new().read(true).write(true).custom_flags(nix::libc::O_DSYNC).open(esp)?;
    let length = disk.seek(SeekFrom::End(0))?;
    forget_cached(&disk)?;
    let placed = FatReader::new(&disk, 0, length).placed(path)?;
    Ok((disk, placed))
}

/// Drops cached blocks, so that the next read comes from the disk.
fn forget_cached(disk: &File) -> Result<()> {
    // A file of a file system has no cache of its own.
    if disk.metadata()?.file_type().is_block_device() {
        kernel_calls::drop_buffers(disk)?;
    }
    Ok(())
}

/// Writes the sectors that differ, the first one last, and reads them back. Both contents have the same length, one sector or two.
pub(super) fn write(disk: &File, place: u64, old: &[u8], new: &[u8]) -> Result<()> {
    let sectors = [SECTOR_BYTES..new.len(), 0..SECTOR_BYTES];
    for sector in sectors.into_iter().filter(|sector| old[sector.clone()] != new[sector.clone()]) {
        disk.write_all_at(&new[sector.clone()], place + sector.start as u64).context("writing it")?;
        disk.sync_all().context("flushing it")?;
    }
    forget_cached(disk)?;
    let mut found = vec![0; new.len()];
    disk.read_exact_at(&mut found, place).context("reading it back")?;
    if found == new {
        return Ok(());
    }
    Err(Failure::new(Class::DiskIo, "it does not read back as written").hint(device::UNRELIABLE).into())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use base::failure::class_of;
    use model::boot::Slot;
    use model::boot::record::{SlotState, UpdateSlot};
    use std::fs;
    use std::io::Write;

    /// An EFI system partition that is a file, with these files in its directory `grub`.
    pub(in crate::execute::boot) fn esp_with(
        directory: &Path,
        name: &str,
        files: &[(&str, &[u8])],
    ) -> PathBuf {
        let path = directory.join(name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        fatfs::format_volume(&file, fatfs::FormatVolumeOptions::new()).unwrap();
        let volume = fatfs::FileSystem::new(&file, fatfs::FsOptions::new()).unwrap();
        let grub = volume.root_dir().create_dir("grub").unwrap();
        for (file, content) in files {
            grub.create_file(file).unwrap().write_all(content).unwrap();
        }
        path
    }

    /// One with this boot record.
    fn esp(directory: &Path, name: &str, block: &[u8]) -> PathBuf {
        esp_with(directory, name, &[("grubenv", block)])
    }

    fn on_disk(esp: &Path) -> (BootRecord, RecordCondition) {
        let file = RecordFile::open(esp).unwrap();
        (file.record, file.condition)
    }

    fn trial() -> BootRecord {
        let mut record = BootRecord::installed();
        record.a = SlotState::Good;
        record.b = SlotState::Try;
        record.order = UpdateSlot::B;
        record.left = 1;
        record.run = Some(Slot::B);
        record
    }

    #[test]
    fn every_disk_gets_the_record_of_the_one_that_grub_was_loaded_from() {
        let directory = tempfile::tempdir().unwrap();
        let first = esp(directory.path(), "first", &trial().to_block());
        // GRUB writes to one disk only, so the other one is behind.
        let second = esp(directory.path(), "second", &BootRecord::installed().to_block());
        let esps = [first.clone(), second.clone()];
        let changed =
            change_record(&esps, |record| record.set_state(UpdateSlot::B, SlotState::Good)).unwrap();
        assert!(changed.unwritten.is_empty());
        assert_eq!((changed.record.b, changed.record.run), (SlotState::Good, Some(Slot::B)));
        let plain = |record: BootRecord| BootRecord { generation: 0, ..record };
        for disk in [&first, &second] {
            assert_eq!(plain(on_disk(disk).0), plain(changed.record.clone()));
        }
        // Nothing is written twice.
        let before = esps.each_ref().map(|esp| fs::read(esp).unwrap());
        change_record(&esps, |_| ()).unwrap();
        assert!(before == esps.each_ref().map(|esp| fs::read(esp).unwrap()));
    }

    #[test]
    fn a_damaged_record_is_repaired_from_the_other_disk() {
        let directory = tempfile::tempdir().unwrap();
        for damage in [vec![0; BLOCK_BYTES], vec![b'#'; BLOCK_BYTES]] {
            let first = esp(directory.path(), "first", &damage);
            let second = esp(directory.path(), "second", &trial().to_block());
            let changed = change_record(&[first.clone(), second], |_| ()).unwrap();
            assert_eq!(changed.record.b, SlotState::Try);
            let (record, condition) = on_disk(&first);
            assert_eq!((record.b, record.left, condition), (SlotState::Try, 1, RecordCondition::Whole));
            let alone = esp(directory.path(), "alone", &damage);
            let usual = BootRecord::default();
            assert_eq!(change_record(&[alone], |_| ()).unwrap().record.a, usual.a);
        }
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_told_and_the_other_one_is_enough() {
        let directory = tempfile::tempdir().unwrap();
        let whole = esp(directory.path(), "whole", &trial().to_block());
        let gone = directory.path().join("gone");
        let shorter = esp(directory.path(), "shorter", b"# GRUB Environment Block\n");
        for other in [&gone, &shorter] {
            for esps in [[other.clone(), whole.clone()], [whole.clone(), other.clone()]] {
                let changed = change_record(&esps, |record| record.left = 2).unwrap();
                assert_eq!((changed.record.left, on_disk(&whole).0.left), (2, 2));
                let told = format!("{:#}", changed.unwritten[0]);
                assert!(changed.unwritten.len() == 1 && told.contains(&*other.to_string_lossy()), "{told}");
            }
            let error = change_record(std::slice::from_ref(other), |_| ()).unwrap_err();
            assert_eq!(class_of(&error), Class::DiskIo);
        }
    }
}
