//! ISO 9660 images that boot on BIOS and on UEFI, from optical discs and from USB sticks.
//!
//! Level 3 (files of any length) with Rock Ridge names, an El Torito entry for each kind of firmware and a GUID partition table;
//! for architectures with a BIOS also a boot sector. A [`Layout`] says where everything lies and makes the bytes of descriptors, tables and directories; [`grub`]
//! makes those of GRUB's images. Whoever writes the image copies the files.
//!
//! | Module | What it knows |
//! |---|---|
//! | `layout` | the addresses of everything |
//! | `tree` | the directories, and the names that ISO 9660 gives files |
//! | `view` | the addresses as one of the two volumes counts them |
//! | `records` | directory records with Rock Ridge entries, path tables |
//! | `descriptors` | volume descriptors, El Torito's boot catalog |
//! | `partition_tables` | both copies of the GUID partition table |
//! | [`grub`] | the boot sector, and what GRUB's El Torito image has to know |
//! | `owner` | what bytes belong to |

mod descriptors;
pub mod grub;
mod layout;
mod owner;
mod partition_tables;
mod records;
mod tree;
mod view;

pub use layout::{Layout, LayoutInput, LayoutPart};
pub use owner::{HybridVolume, RegionOwner};
pub use partition_tables::PARTITION;
