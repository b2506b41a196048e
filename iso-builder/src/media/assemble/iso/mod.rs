//! ISO 9660 images that boot on BIOS and on UEFI, from optical drives and from USB sticks.
//!
//! Level 3 (files of any length) with Rock Ridge names, an El Torito entry for each kind of firmware and a GUID partition table, and
//! for machines with a BIOS a boot sector. One FAT image is El Torito's entry for UEFI and the EFI system partition of a stick. `formats::iso9660::write`
//! computes the layout, because the medium check of the installer needs it too; here files are copied there.
//! `iso9660` reads what is written.
//!
//! Owners, modes and times are given, so that those of the sources leave no trace: the same content makes the same
//! bytes. There is no Joliet tree, which would cut the volume's name short.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base::failure::{Class, Classify, Failure};
use base::files::parent;
use base::progress::{Progress, Step};
use base::size::ByteSize;
use formats::iso9660::write::{Layout, LayoutInput, LayoutPart, grub};
use medium::iso::recipe::{ELTORITO, PREPARER};
use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct IsoParts {
    /// Volume id: up to 32 of A-Z, 0-9 and `_`.
    pub volume: String,
    pub guid: Uuid,
    /// The time of the volume and of every file, in seconds since 1970.
    pub epoch: u64,
    /// The files in the order in which they lie on the ISO: path on the ISO, and the file with the content.
    pub files: Vec<(String, PathBuf)>,
    /// None where no BIOS starts the ISO.
    pub bios: Option<BiosBootFiles>,
    pub esp: PathBuf,
}

/// The files with GRUB for BIOS.
#[derive(Clone, Debug)]
pub struct BiosBootFiles {
    /// GRUB's El Torito image; its path on the ISO is [`ELTORITO`].
    pub eltorito: PathBuf,
    /// The boot sector for USB sticks.
    pub hybrid: PathBuf,
}

/// Bytes that are copied between two reports of progress.
const COPY_CHUNK_BYTES: u64 = 8 << 20;

impl IsoParts {
    /// Writes the ISO to `file`, which messages call by its later name `output`; shows progress as the step `step`. After a
    /// failure there is no file.
    pub fn write(&self, file: &Path, output: &Path, step: &str, progress: &Progress) -> Result<()> {
        let mut files = Vec::new();
        if let Some(code) = &self.bios {
            files.push((ELTORITO, length(&code.eltorito)?));
        }
        for (path, source) in &self.files {
            files.push((path, length(source)?));
        }
        let sizes: Vec<_> = files.iter().map(|(_, size)| *size).collect();
        let (volume, guid, epoch, esp) = (&self.volume, self.guid, self.epoch, length(&self.esp)?);
        let bios = self.bios.is_some();
        let layout = Layout::new(&LayoutInput { volume, preparer: PREPARER, guid, epoch, files, bios, esp })?;
        check_space(output, layout.size)?;

        let name = output.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let parts: u64 = layout.parts.iter().map(|part| part.bytes.len() as u64).sum();
        let total = parts + sizes.iter().sum::<u64>() + u64::from(layout.esp.length);
        let mut step = progress.step(step, format!("Writing {name}"), Some(total));
        if let Err(error) = self.fill(file, &layout, &sizes, &mut step) {
            let length = fs::metadata(file).map_or(0, |metadata| metadata.len());
            let _ = fs::remove_file(file);
            // Another program may have filled the disk meanwhile.
            check_space(output, layout.size)?;
            return Err(error)
                .class(Class::DiskIo, || format!("writing {} (at byte {length})", output.display()));
        }
        step.done();
        Ok(())
    }

    fn fill(&self, path: &Path, layout: &Layout, sizes: &[u64], step: &mut Step) -> Result<()> {
        let mut options = File::options();
        let mut iso = options.read(true).write(true).create(true).truncate(true).open(path)?;
        iso.set_len(layout.size.get())?;
        for LayoutPart { at, bytes, .. } in &layout.parts {
            iso.write_all_at(bytes, at.0)?;
            step.advance(bytes.len() as u64);
        }
        let sector = match &self.bios {
            Some(code) => {
                let read =
                    |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
                let (mut image, hybrid) = (read(&code.eltorito)?, read(&code.hybrid)?);
                let eltorito = layout.start(0);
                grub::patch_eltorito(&mut image, eltorito)?;
                iso.write_all_at(&image, eltorito.offset().0)?;
                step.advance(image.len() as u64);
                grub::first_sector(&hybrid, eltorito, layout.size.get())?
            }
            None => grub::plain_first_sector(layout.size.get()),
        };
        let before = usize::from(self.bios.is_some());
        for (number, (_, source)) in self.files.iter().enumerate() {
            let start = layout.start(number + before);
            copy(source, sizes[number + before], &mut iso, start.offset().0, step)?;
        }
        copy(&self.esp, u64::from(layout.esp.length), &mut iso, layout.esp.start.offset().0, step)?;
        iso.write_all_at(&sector, 0)?;
        Ok(())
    }
}

/// In bytes.
fn length(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).with_context(|| format!("reading {}", path.display()))?.len())
}

/// Copies `source`, which has to be `size` bytes long, to byte `at` of `iso`. The kernel copies, and shares the blocks
/// if the file system can.
fn copy(source: &Path, size: u64, iso: &mut File, at: u64, step: &mut Step) -> Result<()> {
    let what = || format!("copying {}", source.display());
    let mut input = File::open(source).with_context(what)?;
    io::Seek::seek(iso, io::SeekFrom::Start(at)).with_context(what)?;
    let mut done = 0;
    loop {
        let count = io::copy(&mut (&mut input).take(COPY_CHUNK_BYTES), iso).with_context(what)?;
        done += count;
        step.advance(count);
        if count < COPY_CHUNK_BYTES || done > size {
            break;
        }
    }
    ensure!(done == size, "{} changed while it was copied: it had {size} bytes", source.display());
    Ok(())
}

/// Fails before anything is written when the disk cannot hold the result.
fn check_space(output: &Path, needed: ByteSize) -> Result<()> {
    let directory = parent(output);
    let stat = nix::sys::statvfs::statvfs(directory)
        .with_context(|| format!("asking for the free space of {}", directory.display()))?;
    let free = ByteSize::bytes(stat.blocks_available() * stat.fragment_size());
    if free >= needed {
        return Ok(());
    }
    let what = format!("{} has no room for {}", directory.display(), output.display());
    let why = anyhow::anyhow!("it needs {needed}, and {free} are free");
    let hint = "Free space there, or write to another disk with -o.";
    Err(Failure::new(Class::DiskIo, what).because(why).hint(hint).into())
}
