//! The EFI system partition: written as a whole, and read back file by file.

use std::cell::RefCell;
use std::io::{self, Read};

use anyhow::{Context, Result};

use crate::execute::cancel::Cancel;
use crate::execute::disk::cache::BlockCache;
use crate::execute::disk::device::{self, BlockDevice};
use crate::plan::{EspContent, EspFile, Partition, files_of_slot_a};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::progress::Step;
use formats::fat::{FatFile, FatKind, FatVolume, write_volume};
use medium::sources::{PayloadSource, Verified};

const LABEL: &str = "NQRUST_ESP";

/// The size of all files together, in bytes.
pub(in crate::execute) fn total(files: &[EspFile]) -> u64 {
    files.iter().map(|file| expected(file).1).sum()
}

/// Formats the partition and writes `files`. Does not flush.
pub(in crate::execute) fn write(
    device: &dyn BlockDevice,
    partition: &Partition,
    (id, epoch): (u32, u64),
    files: &[EspFile],
    source: &dyn PayloadSource,
    step: &mut Step,
    cancel: &Cancel,
) -> Result<()> {
    let sector = u16::try_from(device.sector().bytes())?;
    let volume = FatVolume { label: LABEL, id, sector, epoch, kind: FatKind::Fat32 };
    let step = RefCell::new(step);
    let contents = files.iter().map(|file| {
        let content = LazyContent { file, source, inner: None, step: &step, cancel };
        FatFile::new(&file.path, content)
    });
    let mut cached = BlockCache::fresh(device, partition.start.get(), partition.size.get());
    write_volume(&mut cached, volume, contents.collect())
        .class(Class::DiskIo, || "writing the EFI system partition".into())
}

/// Reads every file back and checks it, and checks that every file named by the boot menu exists.
pub(in crate::execute) fn verify(
    device: &dyn BlockDevice,
    partition: &Partition,
    files: &[EspFile],
) -> Result<()> {
    let cached = BlockCache::new(device, partition.start.get(), partition.size.get());
    let what = || format!("checking the EFI system partition of {}", device.describe());
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
    checked.class(Class::DiskIo, what)?;
    for file in files {
        let EspContent::Text(text) = &file.content else { continue };
        let missing = files_of_slot_a(text).into_iter().find(|path| files.iter().all(|f| f.path != **path));
        if let Some(path) = missing {
            let what = format!("{} names {path}, which does not exist", file.path);
            return Err(Failure::new(Class::Unexpected, what).into());
        }
    }
    Ok(())
}

fn expected(file: &EspFile) -> (Digest, u64) {
    match &file.content {
        EspContent::Payload(payload) => (payload.sha256, payload.size),
        EspContent::Text(text) => (Digest::of(text.as_bytes()), text.len() as u64),
        EspContent::Secret(text) => (Digest::of(text.expose().as_bytes()), text.expose().len() as u64),
    }
}

/// The content of a file, opened when it is first read, so that no connection waits idle.
struct LazyContent<'a> {
    file: &'a EspFile,
    source: &'a dyn PayloadSource,
    inner: Option<Box<dyn Read + 'a>>,
    step: &'a RefCell<&'a mut Step>,
    cancel: &'a Cancel,
}

impl<'a> LazyContent<'a> {
    fn open(&self) -> io::Result<Box<dyn Read + 'a>> {
        match &self.file.content {
            EspContent::Text(text) => Ok(Box::new(text.as_bytes())),
            EspContent::Secret(text) => Ok(Box::new(text.expose().as_bytes())),
            EspContent::Payload(payload) => {
                let opened = self.source.open(payload).map_err(io::Error::other)?;
                Ok(Box::new(Verified::new(opened, payload, self.source.describe())))
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
