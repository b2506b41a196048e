//! How a machine starts: the volumes that firmware and GRUB read, GRUB for BIOS, the firmware's entries; and starting the node.

pub(super) mod bios;
pub(super) mod esp;
pub(super) mod fat_volume;
pub(super) mod finish;
pub(super) mod firmware;
pub(super) mod host_file;
pub(super) mod load;
pub(super) mod read_volume;
pub(super) mod record;
pub(super) mod start;
