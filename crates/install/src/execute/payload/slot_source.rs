//! A slot as a source of its own release: for another slot of the same disk.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::slot;
use crate::execute::boot::read_volume::FatReader;
use crate::plan::{BOOT_VOLUME_BYTES, Partition, SlotGeometry};
use base::failure::{Class, Failure};
use formats::iso9660::{Offset, Source};
use formats::verity::BLOCK_BYTES;
use machine::verity_device::{AtDamage, VerityDevice};
use medium::payload_sources::{PayloadPlace, PayloadSource};
use medium::signatures;
use model::boot::grub::{INITRD_FILE, KERNEL_FILE};
use model::release::{MANIFEST, Payload, Purpose, SIGNATURES};
use model::release_manifest::ReleaseManifest;
use transfer::range::ByteSpan;
use transfer::server::served_file::ServedFile;

/// The slot at the start of a partition or an array, with the release that its boot volume tells.
#[allow(missing_debug_implementations)]
pub struct SlotSource {
    device: PathBuf,
    file: File,
    partition: Partition,
    /// With the signatures, as they are on the boot volume.
    pub release: ReleaseManifest,
}

impl SlotSource {
    /// # Errors
    /// There is no whole boot volume with a release manifest.
    pub fn open(device: &Path, partition: &Partition) -> Result<Self> {
        let file = File::open(device).with_context(|| format!("opening {}", device.display()))?;
        let manifest = boot_volume(&file, partition).file(MANIFEST)?;
        let signatures = signatures(&file, device, partition)?;
        let release = ReleaseManifest::parse(manifest, signatures)?;
        Ok(Self { device: device.to_owned(), file, partition: partition.clone(), release })
    }
}

impl SlotSource {
    /// The payload as other machines get it: the OS image in the form of media, kernel or initrd; none for others. The content may be
    /// something else: the image of media is in a slot only if that was written from it, until its room is used otherwise.
    pub fn served(&self, payload: &Payload) -> Result<Option<ServedFile>> {
        let spans = match (payload.purpose, boot_file(payload.purpose)) {
            (Purpose::Rootfs, _) => {
                let start = SlotGeometry::of(&self.partition).stored(self.release.expanded.size);
                vec![ByteSpan { start, end: start + payload.size }]
            }
            (_, Some(name)) => boot_volume(&self.file, &self.partition).spans(name)?,
            (_, None) => return Ok(None),
        };
        let file = Arc::new(self.file.try_clone()?);
        Ok(Some(ServedFile::spans(file, spans.into(), payload.sha256)))
    }

    /// The device through which the slot is read once it runs.
    ///
    /// # Errors
    /// [`Class::Verification`] if its manifest has no OS image, or one that the slot cannot hold.
    pub fn verity_device(&self, at_damage: AtDamage) -> Result<VerityDevice> {
        let length = self.release.expanded.size;
        let image = self.release.payload(Purpose::Rootfs).filter(|_| {
            length > 0
                && length.is_multiple_of(BLOCK_BYTES as u64)
                && slot::holds_image(&self.partition, length)
        });
        let image = image.ok_or_else(|| {
            Failure::new(Class::Verification, format!("the release manifest of {} has no OS image that it can hold", self.describe()))
                .hint("Start the other slot or the recovery system, and write this one anew: installer update apply --from MEDIUM")
        })?;
        Ok(VerityDevice {
            device: self.device.clone(),
            length,
            tree_device: self.device.clone(),
            tree: SlotGeometry::of(&self.partition).tree(length),
            salt: image.sha256,
            root_hash: self.release.expanded.root_hash,
            at_damage,
        })
    }
}

fn signatures(file: &File, device: &Path, partition: &Partition) -> Result<Option<Vec<u8>>> {
    match boot_volume(file, partition).file(SIGNATURES) {
        Ok(bytes) => signatures::read(&*bytes, || describe(device)),
        Err(error) => match error.downcast_ref::<io::Error>() {
            Some(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Err(error),
        },
    }
}

fn describe(device: &Path) -> String {
    format!("the slot on {}", device.display())
}

fn boot_volume<'a>(file: &'a File, partition: &Partition) -> FatReader<'a> {
    FatReader::new(file, SlotGeometry::of(partition).boot.get(), BOOT_VOLUME_BYTES.get())
}

fn boot_file(purpose: Purpose) -> Option<&'static str> {
    match purpose {
        Purpose::Kernel => Some(KERNEL_FILE),
        Purpose::Initrd => Some(INITRD_FILE),
        _ => None,
    }
}

impl Source for SlotSource {
    /// Reads from the start of the slot, where the expanded image is.
    fn read_at(&self, buffer: &mut [u8], offset: Offset) -> io::Result<usize> {
        let left = usize::try_from(self.length()?.saturating_sub(offset.0)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        FileExt::read_at(&self.file, &mut buffer[..count], self.partition.start.get() + offset.0)
    }

    /// That of the expanded image.
    fn length(&self) -> io::Result<u64> {
        Ok(self.release.expanded.size)
    }
}

impl PayloadSource for SlotSource {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let name = boot_file(payload.purpose);
        let name = name.with_context(|| format!("{} does not have {}", self.describe(), payload.path))?;
        Ok(Box::new(Cursor::new(boot_volume(&self.file, &self.partition).file(name)?)))
    }

    fn has_expanded(&self, _: &Payload) -> bool {
        true
    }

    fn write_expanded(&self, _: &Payload, out: &mut dyn Write) -> Result<()> {
        // Opened again: clones of a file share its place.
        let mut image = File::open(&self.device)?;
        image.seek(SeekFrom::Start(self.partition.start.get()))?;
        io::copy(&mut image.take(self.release.expanded.size), out)?;
        Ok(())
    }

    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        let here = payload.purpose == Purpose::Rootfs || boot_file(payload.purpose).is_some();
        here.then_some(PayloadPlace::Here)
    }

    fn probe(&self, _: &Payload) -> Result<()> {
        Ok(())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        Ok(self.release.bytes().to_vec())
    }

    fn signatures(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.release.signatures().map(<[u8]>::to_vec))
    }

    fn describe(&self) -> String {
        describe(&self.device)
    }
}
