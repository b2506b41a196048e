//! A slot as a source of its own release: for another slot of the same disk.

use std::fs::File;
use std::io::{Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::execute::boot::read_volume::FatReader;
use crate::plan::{BOOT_VOLUME_BYTES, Partition, SlotGeometry};
use medium::sources::{PayloadPlace, PayloadSource};
use model::release::{Payload, Purpose, Release};

/// The slot at the start of a partition or an array, with the release that its boot volume tells.
#[allow(missing_debug_implementations)]
pub struct SlotSource {
    device: PathBuf,
    file: File,
    partition: Partition,
    pub release: Release,
}

impl SlotSource {
    /// # Errors
    /// There is no whole boot volume with a release manifest.
    pub fn open(device: &Path, partition: &Partition) -> Result<Self> {
        let file = File::open(device).with_context(|| format!("opening {}", device.display()))?;
        let manifest = boot_volume(&file, partition).file(model::release::MANIFEST)?;
        let release = Release::parse(&manifest)?;
        Ok(Self { device: device.to_owned(), file, partition: partition.clone(), release })
    }
}

fn boot_volume<'a>(file: &'a File, partition: &Partition) -> FatReader<'a> {
    FatReader::new(file, SlotGeometry::of(partition).boot.get(), BOOT_VOLUME_BYTES.get())
}

/// The name of a payload's file in the boot volume.
fn boot_file(purpose: Purpose) -> Option<&'static str> {
    match purpose {
        Purpose::Kernel => Some("vmlinuz"),
        Purpose::Initrd => Some("initrd"),
        _ => None,
    }
}

impl PayloadSource for SlotSource {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        if let Some(name) = boot_file(payload.purpose) {
            return Ok(Box::new(Cursor::new(boot_volume(&self.file, &self.partition).file(name)?)));
        }
        let file = self.file.try_clone()?;
        Ok(Box::new(Image { file, at: self.partition.start.get(), left: payload.size }))
    }

    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        let here = payload.purpose == Purpose::Rootfs || boot_file(payload.purpose).is_some();
        here.then_some(PayloadPlace::Here)
    }

    fn probe(&self, _: &Payload) -> Result<()> {
        Ok(())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        Ok(self.release.to_bytes())
    }

    fn describe(&self) -> String {
        format!("the slot on {}", self.device.display())
    }
}

/// The OS image.
struct Image {
    file: File,
    at: u64,
    left: u64,
}

impl Read for Image {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..wanted], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
