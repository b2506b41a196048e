//! What lies where in the partition of a slot: the OS image at its start, the hash tree behind it, and the boot volume at a
//! fixed distance from the end, so that a `grub.cfg` which never changes finds it.

use super::layout::Partition;
use base::size::ByteSize;
use formats::verity;

/// How far before the end of the partition the boot volume begins: room for kernel and initrd of several releases to come.
const BOOT_ROOM: ByteSize = ByteSize::mib(320);

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

    /// The room for the image and its tree.
    #[must_use]
    pub fn image_room(self) -> ByteSize {
        self.boot_offset()
    }

    /// Where the tree of an image of this length begins: behind the image, at a whole block.
    #[must_use]
    pub fn tree(self, image: u64) -> u64 {
        self.start.get() + image.next_multiple_of(verity::BLOCK_BYTES as u64)
    }
}

/// The bytes that an image of this length takes up in a slot, with its tree.
#[must_use]
pub fn image_bytes(image: u64) -> ByteSize {
    ByteSize::bytes(image.next_multiple_of(verity::BLOCK_BYTES as u64) + verity::tree_bytes(image))
}
