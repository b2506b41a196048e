//! The EFI system partition inside an ISO.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use installer::fat::{self, FatFile, Kind, Volume};
use installer::size::ByteSize;

use crate::boot::loaders::{GRUB_EFI, MOK_MANAGER, SHIM};
use crate::boot::menu::Menu;

/// Room beside the files for the file system itself.
const SPARE: ByteSize = ByteSize::mib(1);

/// Makes the image `output`: shim as the default loader, the MOK manager, GRUB, and where GRUB goes on.
pub fn make(loaders: &Path, stub: &str, id: u32, epoch: u64, output: &Path) -> Result<()> {
    let mut files = Vec::new();
    let mut size = ByteSize::bytes(stub.len() as u64) + SPARE;
    for (loader, path) in [
        (SHIM, "EFI/BOOT/BOOTX64.EFI"),
        (GRUB_EFI, "EFI/BOOT/grubx64.efi"),
        (MOK_MANAGER, "EFI/BOOT/mmx64.efi"),
    ] {
        let source = loaders.join(loader);
        let file = File::open(&source).with_context(|| format!("opening {}", source.display()))?;
        size = size + ByteSize::bytes(file.metadata()?.len());
        files.push(FatFile::new(path, file));
    }
    files.push(FatFile::new("EFI/debian/grub.cfg", stub.as_bytes()));
    files.push(FatFile::new(Menu::ESP_MARK, std::io::empty()));
    let mut image = File::options().read(true).write(true).create_new(true).open(output)?;
    image.set_len(size.align_up(1 << 20).get())?;
    let volume = Volume { label: "ESP", id, sector: 512, epoch, kind: Kind::BySize };
    fat::write_volume(&mut image, volume, files).context("making the EFI system partition of the ISO")
}
