//! The EFI system partition inside an ISO.

use std::io::{self, Cursor};

use anyhow::{Context, Result, ensure};

use super::menu::Menu;
use base::size::ByteSize;
use formats::fat::{self, FatFile, FatKind, FatVolume};
use model::architecture::Architecture;
use model::release::Purpose;

/// The space of the file system itself.
const SPARE: ByteSize = ByteSize::mib(1);
/// The limit of all loaders together: the partition is made in memory.
const MOST: ByteSize = ByteSize::mib(256);

/// The loaders, which are payloads of every medium, and where on the partition firmware and shim look for them.
#[must_use]
pub fn loaders(architecture: Architecture) -> [(Purpose, &'static str); 3] {
    let paths = architecture.loaders();
    [(Purpose::Shim, paths.shim), (Purpose::GrubEfi, paths.grub), (Purpose::MokManager, paths.mok_manager)]
}

/// Length of the partition in bytes for loaders of the lengths `loaders` in bytes.
pub fn length(menu: &Menu<'_>, loaders: [u64; 3]) -> Result<u64> {
    let files = loaders.iter().fold(menu.stub().len() as u64, |sum, length| sum.saturating_add(*length));
    ensure!(files < MOST.get(), "boot loaders of {} are too large", ByteSize::bytes(files));
    Ok((ByteSize::bytes(files) + SPARE).align_up(1 << 20).get())
}

/// The partition: shim as the default loader, GRUB, the MOK manager, and where GRUB goes on. `loaders` are in the order
/// of [`loaders`].
pub fn image(menu: &Menu<'_>, epoch: u64, loaders: [&Vec<u8>; 3]) -> Result<Vec<u8>> {
    let stub = menu.stub();
    let length = length(menu, loaders.map(|content| content.len() as u64))?;
    let files = self::loaders(menu.architecture).into_iter().zip(loaders);
    let mut files: Vec<_> = files.map(|((_, path), content)| FatFile::new(path, &content[..])).collect();
    files.push(FatFile::new("EFI/debian/grub.cfg", stub.as_bytes()));
    files.push(FatFile::new(Menu::ESP_MARK, io::empty()));
    let mut image = Cursor::new(vec![0; usize::try_from(length)?]);
    let [first, second, third, fourth, ..] = *menu.release.as_bytes();
    let id = u32::from_le_bytes([first, second, third, fourth]);
    let volume = FatVolume { label: "ESP", id, sector: 512, epoch, kind: FatKind::BySize };
    fat::write_volume(&mut image, volume, files).context("making the EFI system partition of the ISO")?;
    Ok(image.into_inner())
}
