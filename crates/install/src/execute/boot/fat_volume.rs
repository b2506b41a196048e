//! The FAT volumes of a node, which its firmware and GRUB read: the EFI system partition and the boot volumes of the slots.
//! Each is written as a whole, and read back file by file.

use std::cell::RefCell;
use std::io::{self, Read};

use anyhow::{Context, Result};

use crate::execute::disk::cache::BlockCache;
use crate::execute::disk::device::{self, BlockDevice};
use crate::plan::{
    BOOT_VOLUME_BYTES, FatContent, Partition, PlannedContent, PlannedFile, SectorSize, SlotGeometry,
};
use base::cancel::Cancel;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::progress::Step;
use base::size::ByteSize;
use formats::fat::{FatFile, FatKind, FatVolume, write_volume};
use medium::payload_sources::{PayloadSource, VerifyingReader};

/// Where a volume lies, and how it is told from others.
#[derive(Clone, Copy)]
pub(crate) struct FatPlace {
    start: ByteSize,
    size: ByteSize,
    label: &'static str,
    /// What people call it.
    name: &'static str,
    /// Bytes per sector of the volume.
    sector: u16,
}

impl FatPlace {
    /// The EFI system partition. Firmware reads it by the sectors of the disk.
    pub(crate) fn esp(partition: &Partition, device: &dyn BlockDevice) -> Self {
        let sector = if device.sector() == SectorSize::B4096 { 4096 } else { 512 };
        let Partition { start, size, .. } = *partition;
        Self { start, size, label: "NQRUST_ESP", name: "the EFI system partition", sector }
    }

    /// The boot volume of a slot. GRUB reads it through a loop device, whose sectors have 512 bytes on every disk.
    pub(crate) fn boot_volume(slot: SlotGeometry) -> Self {
        let (start, size) = (slot.boot, BOOT_VOLUME_BYTES);
        Self { start, size, label: "NQRUST_BOOT", name: "the boot volume", sector: 512 }
    }
}

/// The size of all files together, in bytes.
pub(crate) fn total(files: &[PlannedFile]) -> u64 {
    files.iter().map(|file| expected(file).1).sum()
}

/// Formats the volume and writes its files. Does not flush.
pub(crate) fn write(
    device: &dyn BlockDevice,
    place: FatPlace,
    content: &FatContent,
    source: &dyn PayloadSource,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<()> {
    let FatContent { volume_id: id, epoch, ref files } = *content;
    let volume = FatVolume { label: place.label, id, sector: place.sector, epoch, kind: FatKind::Fat32 };
    let step = RefCell::new(step);
    let contents = files.iter().map(|file| {
        let content = LazyContent { file, source, inner: None, step: &step, cancel };
        FatFile::new(&file.path, content)
    });
    let mut cached = BlockCache::fresh(device, place.start.get(), place.size.get());
    write_volume(&mut cached, volume, contents.collect())
        .class(Class::DiskIo, || format!("writing {}", place.name))
}

/// Reads every file back and checks it.
pub(crate) fn verify(device: &dyn BlockDevice, place: FatPlace, files: &[PlannedFile]) -> Result<()> {
    let cached = BlockCache::new(device, place.start.get(), place.size.get());
    let what = || format!("checking {} of {}", place.name, device.describe());
    let checked = (|| {
        let volume = fatfs::FileSystem::new(cached, fatfs::FsOptions::new())?;
        for file in files {
            let found = volume.root_dir().open_file(&file.path);
            let found =
                found.and_then(Digest::of_reader).with_context(|| format!("reading {}", file.path))?;
            if found != expected(file) {
                let what = format!("{} does not read back as written", file.path);
                return Err(Failure::new(Class::DiskIo, what).hint(device::UNRELIABLE).into());
            }
        }
        anyhow::Ok(())
    })();
    checked.class(Class::DiskIo, what)
}

fn expected(file: &PlannedFile) -> (Digest, u64) {
    match &file.content {
        PlannedContent::Payload(payload) => (payload.sha256, payload.size),
        PlannedContent::Text(text) => (Digest::of(text.as_bytes()), text.len() as u64),
        PlannedContent::Secret(text) => (Digest::of(text.expose().as_bytes()), text.expose().len() as u64),
    }
}

/// The content of a file, opened when it is first read, so that no connection waits idle.
struct LazyContent<'a> {
    file: &'a PlannedFile,
    source: &'a dyn PayloadSource,
    inner: Option<Box<dyn Read + 'a>>,
    step: &'a RefCell<&'a mut Step>,
    cancel: &'a Cancel,
}

impl<'a> LazyContent<'a> {
    fn open(&self) -> io::Result<Box<dyn Read + 'a>> {
        match &self.file.content {
            PlannedContent::Text(text) => Ok(Box::new(text.as_bytes())),
            PlannedContent::Secret(text) => Ok(Box::new(text.expose().as_bytes())),
            PlannedContent::Payload(payload) => {
                let opened = self.source.open(payload).map_err(io::Error::other)?;
                Ok(Box::new(VerifyingReader::new(opened, payload, self.source.describe())))
            }
        }
    }
}

impl Read for LazyContent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check().map_err(io::Error::other)?;
        if self.inner.is_none() {
            self.inner = Some(self.open()?);
        }
        let count = self.inner.as_mut().map_or(Ok(0), |inner| inner.read(buffer))?;
        self.step.borrow_mut().advance(count as u64);
        Ok(count)
    }
}
