//! The files of an ISO, their order, and the content of those that are not payloads, all derived from the release manifest.

use std::borrow::Cow;

use anyhow::{Context, Result};
use uuid::Uuid;

use super::esp;
use super::menu::{Menu, volume_id};
use crate::customization::{self, area, argument};
use base::digest::Digest;
use formats::iso9660::write::{Layout, LayoutInput};
use formats::verity;
use model::release::{
    IsoRecipe, MANIFEST, Payload, Purpose, ROOTFS_TREE, Release, SIGNATURES, SIGNATURES_LENGTH,
};

/// The number of the recipe that this program follows. It changes whenever the bytes of an ISO do.
pub const NUMBER: u32 = 5;

/// The recipe of ISOs without [`HARDWARE`](model::release::HARDWARE). Otherwise they are as those of [`NUMBER`], so older programs can check
/// every byte of them too.
pub const WITHOUT_HARDWARE: u32 = 4;

/// Whether this program follows the recipe of these ISOs.
#[must_use]
pub fn is_followed(iso: &IsoRecipe) -> bool {
    iso.recipe == number(iso.hardware.is_some())
}

/// The number of the recipe for ISOs with or without [`HARDWARE`](model::release::HARDWARE).
#[must_use]
pub fn number(has_hardware: bool) -> u32 {
    if has_hardware { NUMBER } else { WITHOUT_HARDWARE }
}

/// The data preparer in the volume descriptors.
pub const PREPARER: &str = "ISO-BUILDER";
/// The path of GRUB's El Torito image on an ISO that starts on BIOS. It is the first file there.
pub const ELTORITO: &str = "boot/grub/eltorito.img";
pub const BOOT_MENU: &str = "boot/grub/grub.cfg";
/// The first file that the signed GRUB reads if firmware has started it from the file system of an optical disc.
const STUB: &str = "EFI/debian/grub.cfg";

#[derive(Clone, Debug)]
pub enum FileContent<'a> {
    Bytes(Cow<'a, [u8]>),
    /// The signatures of the manifest: none until the medium is signed.
    Signatures,
    /// The kernel arguments that GRUB adds: none until the medium is customized.
    Arguments,
    /// The customization area: zeros until the medium is customized.
    Area,
    /// The hash tree over the OS image.
    Tree(RootfsTree<'a>),
    Payload(&'a Payload),
}

/// dm-verity's hash tree over the OS image of a medium, as the medium has that.
#[derive(Clone, Copy, Debug)]
pub struct RootfsTree<'a> {
    pub image: &'a Payload,
    pub root_hash: Digest,
}

impl RootfsTree<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        verity::tree_bytes(self.image.size)
    }
}

impl FileContent<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Signatures => SIGNATURES_LENGTH,
            Self::Arguments => argument::GRUB_LENGTH as u64,
            Self::Area => area::LENGTH,
            Self::Tree(tree) => tree.length(),
            Self::Payload(payload) => payload.size,
        }
    }
}

/// The recipe of the ISO of one release.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    pub release: &'a Release,
    manifest: &'a [u8],
    digest: Digest,
}

impl<'a> Recipe<'a> {
    /// The recipe for `release`, whose manifest has the bytes `manifest`.
    #[must_use]
    pub fn new(release: &'a Release, manifest: &'a [u8]) -> Self {
        Self { release, manifest, digest: Digest::of(manifest) }
    }

    #[must_use]
    pub fn menu(&self) -> Menu<'a> {
        let Release { id, name, version, kernel_arguments, .. } = self.release;
        Menu {
            architecture: self.release.architecture,
            title: format!("{name} {version}"),
            volume: volume_id(&format!("{id}_{version}")),
            release: self.digest,
            arguments: kernel_arguments,
            password: self.release.payload(Purpose::BootPassword).map(|payload| payload.path.as_str()),
        }
    }

    #[must_use]
    pub fn guid(&self) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_OID, self.digest.as_bytes())
    }

    /// The files behind [`ELTORITO`], where that is there, in the order in which they lie.
    #[must_use]
    pub fn files(&self) -> Vec<(String, FileContent<'a>)> {
        let menu = self.menu();
        let text = |text: String| FileContent::Bytes(Cow::Owned(text.into_bytes()));
        let mut files = vec![
            (MANIFEST.to_owned(), FileContent::Bytes(Cow::Borrowed(self.manifest))),
            (SIGNATURES.to_owned(), FileContent::Signatures),
            (menu.mark(), text(String::new())),
            (BOOT_MENU.to_owned(), text(menu.render())),
            (STUB.to_owned(), text(menu.stub())),
            (customization::GRUB_FILE.to_owned(), FileContent::Arguments),
            (customization::FILE.to_owned(), FileContent::Area),
        ];
        files.extend(self.tree().map(|tree| (ROOTFS_TREE.to_owned(), FileContent::Tree(tree))));
        files.extend(
            self.release
                .carried_payloads()
                .map(|payload| (payload.path.clone(), FileContent::Payload(payload))),
        );
        files
    }

    /// The hash tree over the OS image; none if the manifest has no root hash or no image.
    fn tree(&self) -> Option<RootfsTree<'a>> {
        let release: &'a Release = self.release;
        let root_hash = release.iso.as_ref()?.rootfs_root_hash?;
        Some(RootfsTree { image: release.payload(Purpose::Rootfs)?, root_hash })
    }

    /// The payloads that the EFI system partition is made of, in the order of [`esp::loaders`].
    pub fn loaders(&self) -> Result<[&'a Payload; 3]> {
        let release: &'a Release = self.release;
        let find = |number: usize| {
            let (purpose, path) = esp::loaders(release.architecture)[number];
            release.payload(purpose).with_context(|| format!("the release has no payload for {path}"))
        };
        Ok([find(0)?, find(1)?, find(2)?])
    }

    /// The layout of the ISO. `eltorito` is the length of GRUB's El Torito image in bytes; none where no BIOS starts the ISO.
    pub fn layout(&self, eltorito: Option<u64>) -> Result<Layout> {
        let (menu, files) = (self.menu(), self.files());
        let behind = files.iter().map(|(path, content)| (path.as_str(), content.length()));
        Layout::new(&LayoutInput {
            volume: &menu.volume,
            preparer: PREPARER,
            guid: self.guid(),
            epoch: self.release.epoch,
            files: eltorito.map(|length| (ELTORITO, length)).into_iter().chain(behind).collect(),
            bios: eltorito.is_some(),
            esp: esp::length(&menu, self.loaders()?.map(|payload| payload.size))?,
        })
    }
}
