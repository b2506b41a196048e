//! Which payloads an install needs, and whether they fit.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::layout::{Partition, PartitionName};
use super::slot::{BOOT_VOLUME_BYTES, SlotGeometry, slot_bytes};
use super::step::UnpackedImage;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::size::ByteSize;
use model::config::Role;
use model::release::{ExpandedImage, Payload, Purpose, Release};

/// GRUB counts the sectors of its core in 16 bits, and its partition has 1 MiB.
const CORE_SIZE_MAX: ByteSize = ByteSize::mib(1);

pub(super) struct NeededPayloads {
    pub(super) kernel: Payload,
    pub(super) initrd: Payload,
    pub(super) rootfs: Payload,
    pub(super) expanded: ExpandedImage,
    pub(super) shim: Payload,
    pub(super) mok_manager: Option<Payload>,
    pub(super) grub: Payload,
    /// None for an architecture without a BIOS.
    pub(super) bios: Option<BiosPayloads>,
    /// Blobs of the images that the role needs, each once.
    pub(super) blobs: Vec<Payload>,
    pub(super) metadata: Option<Payload>,
}

/// GRUB for BIOS.
pub(super) struct BiosPayloads {
    pub(super) boot: Payload,
    pub(super) core: Payload,
}

impl NeededPayloads {
    /// With `images` false the node pulls its container images itself.
    pub(super) fn of(release: &Release, role: Role, images: bool) -> Result<Self> {
        let one = |purpose| release.payload(purpose).cloned().ok_or_else(|| missing(purpose));
        let (blobs, metadata) = if images { images_of(release, role)? } else { Default::default() };
        Ok(Self {
            kernel: one(Purpose::Kernel)?,
            initrd: one(Purpose::Initrd)?,
            rootfs: one(Purpose::Rootfs)?,
            expanded: release.expanded,
            shim: one(Purpose::Shim)?,
            mok_manager: release.payload(Purpose::MokManager).cloned(),
            grub: one(Purpose::GrubEfi)?,
            bios: match release.architecture.has_bios() {
                true => Some(BiosPayloads { boot: one(Purpose::GrubBoot)?, core: one(Purpose::GrubCore)? }),
                false => None,
            },
            blobs,
            metadata,
        })
    }

    /// Every payload, each path once, in the order in which the steps read them.
    pub(super) fn all(&self) -> Vec<Payload> {
        let loaders = [&self.shim, &self.grub].into_iter().chain(&self.mok_manager);
        let loaders = loaders.chain([&self.kernel, &self.initrd, &self.rootfs]);
        let bios = self.bios.iter().flat_map(|bios| [&bios.boot, &bios.core]);
        let all = loaders.chain(&self.blobs).chain(&self.metadata).chain(bios);
        let mut seen = BTreeSet::new();
        all.filter(|payload| seen.insert(payload.path.clone())).cloned().collect()
    }

    /// Fails if a payload does not fit its partition.
    pub(super) fn fit(&self, partitions: &[Partition]) -> Result<()> {
        let size = |name| partitions.iter().find(|p| p.name == name).map(|p| p.size).unwrap_or_default();
        let bytes = |payloads: &[&Payload]| ByteSize::bytes(payloads.iter().map(|p| p.size).sum());
        if let Some(slot) = partitions.iter().find(|partition| partition.name == PartitionName::RootA) {
            fit_slot(slot, (&self.rootfs, self.expanded), &self.kernel, &self.initrd)?;
        }
        let esp = bytes(&[&self.shim, &self.grub]) + FAT_TABLES;
        check("what the firmware loads", esp, "the EFI system partition", size(PartitionName::Esp))?;
        let blobs: Vec<_> = self.blobs.iter().chain(&self.metadata).collect();
        // The rest is for the file system's own tables and for the unpacked images.
        let room = ByteSize::bytes(size(PartitionName::Persistent).get() / 2);
        check("the container images", bytes(&blobs), "half of the persistent partition", room)?;
        let Some(BiosPayloads { boot, core }) = &self.bios else { return Ok(()) };
        check("GRUB's core", bytes(&[core]), "its partition", CORE_SIZE_MAX)?;
        if boot.size != 512 || core.size <= 512 {
            let what = "the boot code for BIOS on this medium does not have the length of GRUB's";
            return Err(Failure::new(Class::Verification, what).into());
        }
        Ok(())
    }
}

/// What the tables and directories of a FAT volume of a few hundred MiB need, and more.
const FAT_TABLES: ByteSize = ByteSize::mib(16);

/// Fails if a release does not fit a slot.
pub(crate) fn fit_slot(
    slot: &Partition,
    (image, expanded): (&Payload, ExpandedImage),
    kernel: &Payload,
    initrd: &Payload,
) -> Result<(), Failure> {
    let room = SlotGeometry::of(slot).image_room();
    check("the OS image, expanded and compressed,", slot_bytes(image, expanded), "a slot", room)?;
    let boot = ByteSize::bytes(kernel.size + initrd.size) + FAT_TABLES;
    check("kernel and initrd", boot, "a slot's boot volume", BOOT_VOLUME_BYTES)
}

fn check(what: &str, size: ByteSize, place: &str, room: ByteSize) -> Result<(), Failure> {
    if size <= room {
        return Ok(());
    }
    let what = format!("{what} ({size}) does not fit {place} ({room})");
    Err(Failure::new(Class::Hardware, what)
        .hint("Use install.profile: production on a larger disk, or a smaller medium."))
}

fn missing(purpose: Purpose) -> Failure {
    let name = serde_json::to_value(purpose).ok();
    let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or_default().to_owned();
    Failure::new(Class::Verification, format!("the release manifest names no payload for {name}"))
        .hint("Use a complete medium; `iso-builder verify` checks one.")
}

/// The blobs of the images that `role` needs, in the order of the manifest, and containerd's metadata for them.
pub(crate) fn images_of(release: &Release, role: Role) -> Result<(Vec<Payload>, Option<Payload>)> {
    let blobs = blobs(release, role)?;
    let metadata = release.image_metadata(role.name()).cloned().filter(|_| !blobs.is_empty());
    if metadata.is_none() && !blobs.is_empty() {
        return Err(missing(Purpose::ImageMetadata).into());
    }
    Ok((blobs, metadata))
}

/// The images that `role` needs, each digest once.
pub(crate) fn unpacked(release: &Release, role: Role) -> Vec<UnpackedImage> {
    let mut seen = BTreeSet::new();
    let images = release.images_for(role).filter(|image| seen.insert(image.digest));
    images.map(|image| UnpackedImage { name: image.name.clone(), digest: image.digest }).collect()
}

/// Blobs of the images that `role` needs, in the order of the manifest.
fn blobs(release: &Release, role: Role) -> Result<Vec<Payload>> {
    let by_digest: BTreeMap<Digest, &Payload> =
        release.payloads(Purpose::ImageBlob).map(|payload| (payload.sha256, payload)).collect();
    let mut wanted = BTreeSet::new();
    for image in release.images_for(role) {
        for digest in image.blobs.iter().chain([&image.digest]) {
            if !by_digest.contains_key(digest) {
                let what = format!("the release manifest has no payload for blob {digest} of {}", image.name);
                return Err(Failure::new(Class::Verification, what).into());
            }
            wanted.insert(*digest);
        }
    }
    let blobs = release.payloads(Purpose::ImageBlob).filter(|payload| wanted.remove(&payload.sha256));
    Ok(blobs.cloned().collect())
}
