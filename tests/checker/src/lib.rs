//! Judges a disk at any moment of an install: whether it is bootable, and if so, whether it is complete.
//!
//! It is a second opinion, so it shares nothing with the installer, not even a crate: its readers of partition tables,
//! FAT and ext4 are its own, small and made for this. The installer's unit tests judge recorded writes with it, the
//! end-to-end tests the writes of a whole virtual machine; both make disks of them with [`crash`].

mod bios;
mod bytes;
pub mod crash;
mod ext4;
mod fat;
mod gpt;
mod verdict;

pub use bytes::{Bytes, Overlay, Store, ZeroDisk};
pub use verdict::{BootCode, Expected, File, Hash, Part, Slot, System, Verdict, judge, judge_slot};
