//! What a machine starts from: the EFI system partition, GRUB for BIOS, the firmware's entries; and the start itself.

pub(super) mod bios;
pub(super) mod esp;
pub(super) mod finish;
pub(super) mod firmware;
pub(super) mod start;
