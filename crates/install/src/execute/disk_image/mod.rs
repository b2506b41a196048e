//! A disk in a file, for machines that start from copies of it. It needs neither root nor block devices.
//!
//! [`file`] is the disk. [`host`] stands in for the kernel: a file system is a directory until everything is in it, and [`ext4`] makes
//! the real one from that directory, always with the same bytes. [`grow`] is for the machine that starts from a copy.

mod ext4;
mod file;
mod grow;
mod host;

pub use file::DiskFile;
pub use grow::{Growth, grow_filesystem};
pub use host::ImageHost;
