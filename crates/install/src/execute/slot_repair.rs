//! Reading the OS image of a slot while it runs, and writing what is damaged anew from wherever the right bytes are: the other half of a
//! mirror, or another slot with the same image. The root hash of the release decides which bytes are right.

use anyhow::Result;

use super::disk::device::{self, AlignedBuffer, BlockDevice};
use super::payload::slot::{self, SlotContent};
use super::slot_update::{SlotPlace, SlotRelease};
use crate::plan::{Partition, SlotGeometry};
use base::cancel::Cancel;
use base::failure::{Class, class_of};
use base::progress::Progress;
use formats::verity::{BLOCK_BYTES, VerityTree, tree_bytes};
use model::release_manifest::ReleaseManifest;

/// What was found when a slot was read as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotCheck {
    /// Everything that was damaged.
    pub damage: Vec<SlotDamage>,
}

/// A part of a slot that is not what its release says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotDamage {
    /// The disk, for people.
    pub disk: String,
    pub part: DamagedPart,
    /// Whether it was written anew, and reads back right.
    pub repaired: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamagedPart {
    /// The numbers of blocks of the OS image, each of [`BLOCK_BYTES`].
    Blocks(Vec<u64>),
    HashTree,
    /// Kernel, initrd, manifest and their file system.
    BootVolume,
}

impl SlotCheck {
    #[must_use]
    pub fn is_repaired(&self) -> bool {
        self.damage.iter().all(|damage| damage.repaired)
    }
}

impl SlotPlace<'_> {
    /// Reads the slot, which has to hold `release`, and repairs its image and hash tree from `donors`: other slots, whatever they hold.
    ///
    /// # Errors
    /// The work was canceled, or the manifest names no image. A disk that cannot be read or written is damage.
    pub fn mend(
        &self,
        release: &ReleaseManifest,
        donors: &[SlotPlace<'_>],
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<SlotCheck> {
        let parts = SlotRelease::of(release, self.partition)?;
        let content = parts.content();
        let places: Vec<_> = [self].into_iter().chain(donors).flat_map(SlotPlace::copies).collect();
        let mut damage = Vec::new();
        let mut right_tree = None;
        for disk in self.disks() {
            let report = |part, repaired| SlotDamage { disk: disk.describe(), part, repaired };
            let mut shown = progress.step("slot-check", "Reading the OS image", Some(release.expanded.size));
            let found = slot::hash_readable(disk, self.partition, &content, &mut shown, cancel)?;
            shown.done();
            let whole = found.root == release.expanded.root_hash;
            if whole {
                right_tree = Some(found.clone());
            }
            let expected = match right_tree.take() {
                Some(tree) => Some(tree),
                None => trusted_tree(&places, &content, cancel)?,
            };
            if let Some(expected) = &expected {
                let (mut repaired, mut left) = (Vec::new(), Vec::new());
                for block in expected.other_blocks(&found) {
                    let mended = self.mend_block(disk, block, expected, &places, &content);
                    if tolerate(mended, cancel)? { &mut repaired } else { &mut left }.push(block);
                }
                for (blocks, repaired) in [(repaired, true), (left, false)] {
                    damage
                        .extend((!blocks.is_empty()).then(|| report(DamagedPart::Blocks(blocks), repaired)));
                }
                let at = SlotGeometry::of(self.partition).tree(release.expanded.size);
                if slot::tree_difference(disk, at, expected).map_or(true, |differs| differs.is_some()) {
                    let repaired = self.mend_tree(disk, at, expected);
                    damage.push(report(DamagedPart::HashTree, tolerate(repaired, cancel)?));
                }
            } else {
                // No tree says which block it is.
                damage.push(report(DamagedPart::Blocks(Vec::new()), false));
            }
            right_tree = expected;
            match slot::check_boot(disk, self.partition, &content) {
                Ok(()) => {}
                Err(error) if class_of(&error) == Class::DiskIo => {
                    damage.push(report(DamagedPart::BootVolume, false));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(SlotCheck { damage })
    }

    /// The slot on each of its disks.
    fn copies(&self) -> Vec<(&dyn BlockDevice, &Partition)> {
        self.disks().into_iter().map(|disk| (disk, self.partition)).collect()
    }

    /// Whether the right bytes of a block were found somewhere, and read back on `disk` after they were written.
    fn mend_block(
        &self,
        disk: &dyn BlockDevice,
        number: u64,
        expected: &VerityTree,
        places: &[(&dyn BlockDevice, &Partition)],
        content: &SlotContent<'_>,
    ) -> Result<bool> {
        let mut block = AlignedBuffer::new(BLOCK_BYTES);
        let place = |partition: &Partition| partition.start.get() + number * BLOCK_BYTES as u64;
        let right = places.iter().any(|(other, partition)| {
            slot::holds_image(partition, content.expanded.size)
                && other.read_at(place(partition), &mut block).is_ok()
                && expected.has_block(number, &block)
        });
        if !right {
            return Ok(false);
        }
        device::write(self.whole, place(self.partition), &block)?;
        device::barrier(self.whole)?;
        device::read(disk, place(self.partition), &mut block)?;
        Ok(expected.has_block(number, &block))
    }

    /// Whether the tree was written and reads back on `disk`.
    fn mend_tree(&self, disk: &dyn BlockDevice, at: u64, expected: &VerityTree) -> Result<bool> {
        slot::write_tree(self.whole, at, expected)?;
        device::barrier(self.whole)?;
        Ok(slot::tree_difference(disk, at, expected)?.is_none())
    }
}

/// A disk that does not take what is written has damage that is not repaired.
fn tolerate(repaired: Result<bool>, cancel: &Cancel) -> Result<bool> {
    cancel.check()?;
    Ok(repaired.unwrap_or(false))
}

/// The tree of the image, if it is stored anywhere or some other place has the whole image.
fn trusted_tree(
    places: &[(&dyn BlockDevice, &Partition)],
    content: &SlotContent<'_>,
    cancel: &Cancel,
) -> Result<Option<VerityTree>> {
    let (length, root) = (content.expanded.size, content.expanded.root_hash);
    let fitting = || places.iter().filter(|(_, partition)| slot::holds_image(partition, length));
    for (disk, partition) in fitting() {
        let mut stored = AlignedBuffer::new(usize::try_from(tree_bytes(length))?);
        let read = disk.read_at(SlotGeometry::of(partition).tree(length), &mut stored);
        if read.is_ok()
            && let Some(tree) = VerityTree::of_stored(&stored, slot::parameters(content.image), length, root)
        {
            return Ok(Some(tree));
        }
    }
    for (disk, partition) in fitting() {
        let mut step = Progress::silent().step("slot-check", "Reading another slot", None);
        let found = slot::hash_readable(*disk, partition, content, &mut step, cancel)?;
        if found.root == root {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
