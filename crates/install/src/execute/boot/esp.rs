//! The files by which a machine starts from the EFI system partition of an installed node, read only.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use anyhow::Result;

use super::read_volume::FatReader;
use crate::execute::kernel_calls;
use base::digest::Digest;
use base::failure::{Class, Classify};
use model::architecture::Architecture;

/// The files that an install writes on every machine and an update never changes, beside the loaders of its architecture.
const FILES: [&str; 3] = ["EFI/debian/grub.cfg", "grub/grub.cfg", "grub/node.cfg"];

/// Reads every byte of these files on the partition `esp`, a device node; returns a digest of all of them.
///
/// # Errors
/// [`Class::DiskIo`] with the first that is missing or cannot be read.
pub fn read_esp(esp: &Path) -> Result<Digest> {
    let read = (|| {
        let mut disk = File::open(esp)?;
        let length = disk.seek(SeekFrom::End(0))?;
        kernel_calls::drop_buffers(&disk)?;
        let volume = FatReader::new(&disk, 0, length);
        let loaders = Architecture::of_this_program().loaders();
        let files = [loaders.shim, loaders.grub].into_iter().chain(FILES);
        let files: Vec<_> = files.map(|path| volume.file(path)).collect::<Result<_>>()?;
        anyhow::Ok(Digest::of(&files.concat()))
    })();
    read.class(Class::DiskIo, || format!("reading the boot files on {}", esp.display()))
}
