//! Boot loaders of the media. Their boot menu is `medium::iso::menu`.
//!
//! One chain for UEFI, on media and on installed disks alike: shim, then Debian's signed GRUB, which reads
//! `/EFI/debian/grub.cfg` on the device that it came from. For BIOS two GRUB cores are made: one for El
//! Torito and USB sticks, one for the BIOS boot partition of installed disks.

pub mod loaders;
