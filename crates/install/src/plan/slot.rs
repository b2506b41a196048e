//! What lies where in the partition of a slot: the expanded OS image at its start, the hash tree behind it, then room in which the
//! compressed image is stored while it is expanded, and the boot volume at a fixed distance from the end, so that a `grub.cfg` which
//! never changes finds it.

use super::layout::Partition;
use base::size::ByteSize;
use formats::verity;
use model::release::{ExpandedImage, Payload};

/// How far before the end of the partition the boot volume begins: room for kernel and initrd of several releases to come.
pub const BOOT_ROOM: ByteSize = ByteSize::mib(320);

/// The length of the boot volume. What is behind it belongs to the array of a mirror, whose superblock is at the end.
pub const BOOT_VOLUME_BYTES: ByteSize = ByteSize::mib(319);

/// The bytes of one partition's slot, from the start of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotGeometry {
    pub start: ByteSize,
    /// The first byte of the boot volume. Its first sector is the commit mark: without it nothing is found there.
    pub boot: ByteSize,
}

impl SlotGeometry {
    #[must_use]
    pub fn of(partition: &Partition) -> Self {
        Self { start: partition.start, boot: partition.end().saturating_sub(BOOT_ROOM) }
    }

    /// Where the boot volume begins in its partition.
    #[must_use]
    pub fn boot_offset(self) -> ByteSize {
        self.boot.saturating_sub(self.start)
    }

    /// The boot volume in its partition as GRUB writes a part of a device: it counts in 512 bytes, whatever the disk's sectors are.
    #[must_use]
    pub fn boot_blocks(self) -> String {
        format!("{}+{}", self.boot_offset().get() / 512, BOOT_VOLUME_BYTES.get() / 512)
    }

    #[must_use]
    pub fn image_room(self) -> ByteSize {
        self.boot_offset()
    }

    /// Where the tree of an expanded image of this length begins: behind the image, at a whole block.
    #[must_use]
    pub fn tree(self, expanded: u64) -> u64 {
        self.start.get() + expanded.next_multiple_of(verity::BLOCK_BYTES as u64)
    }

    /// Where the compressed image is stored from which an expanded one of this length is made.
    #[must_use]
    pub fn stored(self, expanded: u64) -> u64 {
        self.start.get() + image_bytes(expanded).get()
    }
}

/// The bytes that an expanded image of this length takes up in a slot, with its tree; whole MiB, as partitions are.
fn image_bytes(expanded: u64) -> ByteSize {
    // What is longer fits no disk, whatever a manifest says.
    let expanded = expanded.min(1 << 60);
    let image = expanded.next_multiple_of(verity::BLOCK_BYTES as u64);
    ByteSize::bytes(image + verity::tree_bytes(expanded)).align_up(ByteSize::mib(1).get())
}

/// The room that a slot needs for an image: for the expanded form with its tree, and for the compressed one until that is made.
#[must_use]
pub(super) fn slot_bytes(image: &Payload, expanded: ExpandedImage) -> ByteSize {
    image_bytes(expanded.size) + ByteSize::bytes(image.size.min(1 << 60))
}
