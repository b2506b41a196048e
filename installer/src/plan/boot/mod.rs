//! The files of the boot loader on the EFI system partition, but for its environment block: GRUB's configuration, which is
//! the same on every node but for a few numbers, and the words of the node.

mod consoles;
mod node;
mod script;

use base::size::ByteSize;

pub use script::LOADER_SCRIPT;

pub(super) use node::{Volumes, node_cfg};
pub(super) use script::{PASSWORD, grub_cfg};

/// Where the boot volume is in every slot, from the slot's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BootVolumeExtent {
    offset: ByteSize,
    length: ByteSize,
}

impl BootVolumeExtent {
    /// What is kept for it at the end of a slot; the last mebibyte is the RAID superblock's.
    const RESERVED: ByteSize = ByteSize::mib(256);
    const LENGTH: ByteSize = ByteSize::mib(255);

    /// In slots of this size; none if they are too small.
    pub(super) fn in_slot(slot: ByteSize) -> Option<Self> {
        let offset = slot.saturating_sub(Self::RESERVED);
        (offset > ByteSize::bytes(0)).then_some(Self { offset, length: Self::LENGTH })
    }

    /// As GRUB writes a part of a device: it counts in 512 bytes, whatever the disk's sectors are.
    fn blocks(self) -> String {
        format!("{}+{}", self.offset.get() / 512, self.length.get() / 512)
    }
}

/// The configuration that Debian's signed GRUB finds at its built-in place. It runs with `root` on the volume that GRUB was
/// loaded from; the search helps if firmware hides which volume that was.
pub(super) fn stub(esp_id: u32) -> String {
    format!(
        "if [ ! -f ($root)/grub/grub.cfg ]; then\n\
         \x20 search --no-floppy --fs-uuid --set=root {:04X}-{:04X}\n\
         fi\n\
         set prefix=($root)/grub\n\
         source ($root)/grub/grub.cfg\n",
        esp_id >> 16,
        esp_id & 0xffff
    )
}

/// The files that the entry of slot a in a `grub.cfg` of ours loads, as paths without a leading slash.
#[must_use]
pub fn files_of_slot_a(grub_cfg: &str) -> Vec<&str> {
    let loads = grub_cfg.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let command = words.next()?;
        let path = words.next()?.strip_prefix("($root)/")?;
        (matches!(command, "linux" | "initrd") && path.starts_with("nqrust/a/")).then_some(path)
    });
    loads.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_volume_id_is_written_as_grub_prints_it() {
        assert!(stub(0x12AB_00CD).contains("--set=root 12AB-00CD\n"));
    }

    #[test]
    fn boot_volumes_are_before_the_end_of_their_slot_which_is_left_to_the_array() {
        let extent = BootVolumeExtent::in_slot(ByteSize::gib(6)).unwrap();
        assert_eq!(extent.blocks(), format!("{}+{}", (6144 - 256) * 2048, 255 * 2048));
        assert_eq!(BootVolumeExtent::in_slot(ByteSize::mib(256)), None);
    }
}
