//! A slot of a running node: written while another one runs, read back from every disk that it is on, and only then given its
//! commit mark, the first sector of its boot volume. Without that GRUB finds nothing in it.

use anyhow::Result;

use super::boot::fat_volume;
use super::disk::device::{self, AlignedBuffer, BlockDevice};
use super::disk::held_sector::HeldSector;
use super::disk::open_disk::OpenDisk;
use super::payload::slot::{self, ImageInput, SlotContent};
use crate::plan::{FatContent, Partition, SlotGeometry, Target, boot_volume, fit_slot};
use base::cancel::Cancel;
use base::failure::{Class, Failure, class_of};
use base::progress::Progress;
use medium::payload_sources::{PayloadSource, VerifyingReader};
use model::release::{Payload, Purpose, Release};
use model::release_manifest::ReleaseManifest;

#[derive(Debug)]
pub struct OpenSlot {
    /// The partition, or the array of a mirror.
    whole: OpenDisk,
    /// The partitions of the array; empty without a mirror.
    halves: Vec<OpenDisk>,
    /// The bytes of the slot, from the start of `whole`.
    partition: Partition,
}

impl OpenSlot {
    /// Opens a slot that is not running, to write it.
    ///
    /// # Errors
    /// [`Class::Hardware`] if it is in use.
    pub fn to_write(whole: &Target, halves: &[Target], partition: Partition) -> Result<Self> {
        let halves = halves.iter().map(OpenDisk::open_to_read).collect::<Result<_>>()?;
        Ok(Self { whole: OpenDisk::open(whole)?, halves, partition })
    }

    /// Opens the slot that runs, to repair its image: what is read through [`ROOT_DEVICE`](machine::verity_device::ROOT_DEVICE) is below
    /// what is written.
    pub fn to_mend(whole: &Target, halves: &[Target], partition: Partition) -> Result<Self> {
        let halves = halves.iter().map(OpenDisk::open_to_read).collect::<Result<_>>()?;
        Ok(Self { whole: OpenDisk::open_in_use(whole)?, halves, partition })
    }

    /// Opens any slot, to read it.
    pub fn to_read(whole: &Target, halves: &[Target], partition: Partition) -> Result<Self> {
        let halves = halves.iter().map(OpenDisk::open_to_read).collect::<Result<_>>()?;
        Ok(Self { whole: OpenDisk::open_to_read(whole)?, halves, partition })
    }

    #[must_use]
    pub fn place(&self) -> SlotPlace<'_> {
        let halves = self.halves.iter().map(|half| half as &dyn BlockDevice).collect();
        SlotPlace { whole: &self.whole, halves, partition: &self.partition }
    }
}

/// Where a slot is written and read.
#[allow(missing_debug_implementations)]
pub struct SlotPlace<'a> {
    pub(crate) whole: &'a dyn BlockDevice,
    pub(crate) halves: Vec<&'a dyn BlockDevice>,
    pub(crate) partition: &'a Partition,
}

/// The parts of a release that a slot has.
pub(super) struct SlotRelease<'a> {
    image: &'a Payload,
    release: &'a ReleaseManifest,
    boot: FatContent,
}

impl<'a> SlotRelease<'a> {
    pub(super) fn of(release: &'a ReleaseManifest, partition: &Partition) -> Result<Self> {
        let payload = |purpose| {
            let lacks =
                || Failure::new(Class::Verification, "the release manifest does not name all parts of an OS");
            release.payload(purpose).ok_or_else(lacks)
        };
        let (image, kernel, initrd) =
            (payload(Purpose::Rootfs)?, payload(Purpose::Kernel)?, payload(Purpose::Initrd)?);
        fit_slot(partition, (image, release.expanded), kernel, initrd)?;
        Ok(Self { image, release, boot: boot_volume(release, kernel, initrd) })
    }

    pub(super) fn content(&self) -> SlotContent<'_> {
        SlotContent { image: self.image, expanded: self.release.expanded, boot: &self.boot }
    }
}

/// Fails if a slot in `partition` has too little room for `release`.
///
/// # Errors
/// [`Class::Hardware`], with both sizes; [`Class::Verification`] if the manifest does not name all parts of an OS.
pub fn require_slot_room(release: &ReleaseManifest, partition: &Partition) -> Result<()> {
    SlotRelease::of(release, partition).map(drop)
}

/// The parts of a release that updating a slot reads from its source.
#[must_use]
pub fn slot_payloads(release: &Release) -> Vec<&Payload> {
    [Purpose::Rootfs, Purpose::Kernel, Purpose::Initrd]
        .into_iter()
        .flat_map(|one| release.payload(one))
        .collect()
}

impl SlotPlace<'_> {
    /// Every device on which the slot has to be right.
    pub(super) fn disks(&self) -> Vec<&dyn BlockDevice> {
        if self.halves.is_empty() { vec![self.whole] } else { self.halves.clone() }
    }

    fn geometry(&self) -> SlotGeometry {
        SlotGeometry::of(self.partition)
    }

    /// Takes the commit mark away: whatever the boot record says, GRUB starts something else.
    pub fn erase_mark(&self) -> Result<()> {
        let mark = AlignedBuffer::new(usize::try_from(self.whole.sector().bytes())?);
        device::write(self.whole, self.geometry().boot.get(), &mark)?;
        device::barrier(self.whole)
    }

    /// Writes the OS of `release`, and the commit mark after all of it was read back.
    ///
    /// # Errors
    /// The slot has no mark after one.
    pub fn write(
        &self,
        release: &ReleaseManifest,
        source: &dyn PayloadSource,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<()> {
        let parts = SlotRelease::of(release, self.partition)?;
        let (content, image) = (parts.content(), parts.image);
        self.erase_mark()?;
        let input = || -> Result<ImageInput<'_>> {
            if source.has_expanded(image) {
                return Ok(ImageInput::Expanded(Box::new(|out| source.write_expanded(image, out))));
            }
            let reader = VerifyingReader::new(source.open(image)?, image, source.describe());
            Ok(ImageInput::Compressed(Box::new(reader)))
        };
        let total = if source.has_expanded(image) { 0 } else { image.size } + release.expanded.size;
        let mut shown = progress.step("image", "Writing the OS image", Some(total));
        slot::from_source(source, image, progress, || {
            shown.back_to(0);
            slot::write_image(self.whole, self.partition, &content, (input()?, None), &mut shown, cancel)
        })?;
        shown.done();
        let held = HeldSector::new(self.whole, self.geometry().boot.get());
        let total = fat_volume::total(&parts.boot.files);
        let mut shown = progress.step("boot-volume", "Writing kernel and initrd", Some(total));
        slot::write_boot(&held, self.partition, &content, source, &mut shown, cancel)?;
        device::barrier(&held)?;
        shown.done();
        self.read_back(&content, &held, progress, cancel)?;
        held.commit()?;
        // A half without the mark would start something else than the other one; then neither has it.
        self.marks_agree().inspect_err(|_| drop(self.erase_mark()))
    }

    fn read_back(
        &self,
        content: &SlotContent<'_>,
        held: &HeldSector<'_>,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<()> {
        for disk in self.disks() {
            let mut shown = progress.step("read-back", "Reading the slot back", Some(content.expanded.size));
            if slot::read_through(disk, self.partition, content, &mut shown, cancel)?.is_none() {
                let what = format!("the OS image on {} does not read back as written", disk.describe());
                return Err(Failure::new(Class::DiskIo, what).hint(device::UNRELIABLE).into());
            }
            slot::check_boot(&held.on(disk), self.partition, content)?;
            shown.done();
        }
        Ok(())
    }

    /// Checks that each half of a mirror has the mark.
    fn marks_agree(&self) -> Result<()> {
        if self.halves.is_empty() {
            return Ok(());
        }
        let at = self.geometry().boot.get();
        let mut mark = AlignedBuffer::new(usize::try_from(self.whole.sector().bytes())?);
        device::read(self.whole, at, &mut mark)?;
        for half in &self.halves {
            let mut found = AlignedBuffer::new(mark.len());
            device::read(*half, at, &mut found)?;
            if let Some(place) = device::first_difference(&found, &mark) {
                return Err(device::differs("the boot sector", at + place, *half).into());
            }
        }
        Ok(())
    }

    /// Whether the slot has all of `release`, on every disk: each byte of the image, its hash tree, and the boot volume are read.
    pub fn holds(&self, release: &ReleaseManifest, progress: &Progress, cancel: &Cancel) -> Result<bool> {
        let parts = SlotRelease::of(release, self.partition)?;
        let content = parts.content();
        for disk in self.disks() {
            // The boot volume is read first, because that takes no time and shows most slots with something else.
            match slot::check_boot(disk, self.partition, &content) {
                Ok(()) => {}
                Err(error) if class_of(&error) == Class::DiskIo => return Ok(false),
                Err(error) => return Err(error),
            }
            let mut shown = progress.step("slot-check", "Reading the OS image", Some(release.expanded.size));
            if slot::read_through(disk, self.partition, &content, &mut shown, cancel)?.is_none() {
                return Ok(false);
            }
            shown.done();
        }
        Ok(true)
    }
}
