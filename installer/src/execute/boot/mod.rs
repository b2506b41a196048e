//! How a machine starts: the EFI system partition, GRUB for BIOS, the firmware's entries; and starting the node.

pub(super) mod bios;
pub(super) mod esp;
pub(super) mod finish;
pub(super) mod firmware;
pub(super) mod start;
