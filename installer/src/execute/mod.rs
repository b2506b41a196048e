//! The executor: carries out a plan, and only a plan.
//!
//! The order of writes is the safety of an install. Every check that can be made before the first write is
//! made before it; the disk is unbootable from the first write on; and the last write, one sector, makes it
//! bootable after all else has been flushed and read back. A failure or a power cut in between leaves a disk
//! that does not boot, and that the next run continues or does over ([`take_up`]).

mod bootcode;
mod cache;
mod cancel;
mod device;
mod disk;
mod esp;
mod filesystems;
mod finish;
mod firmware;
mod hold;
mod host;
mod identity;
mod image;
mod journal;
mod keep;
mod mirror;
mod multipath;
mod others;
mod outcome;
mod overlay;
mod persistent;
mod readback;
mod run;
mod seed;
pub mod start;
mod sys;
mod system;
mod table;
mod take_over;
mod takedown;
mod unfinished;
mod unpack;
mod wipe;

pub use cancel::Cancel;
pub use device::BlockDevice;
pub use disk::Disk;
pub use finish::finish;
pub use host::{Access, Host, Mounted, SystemHost};
pub use identity::DOCUMENT;
pub use mirror::Made;
pub use run::{Opener, Parts, execute};
pub use seed::{AT_ONCE, seed_store};
pub use takedown::take_down;
pub use unfinished::take_up;
pub use unpack::Unpacking;

#[cfg(test)]
mod tests;
