//! Tar archives of strangers, read once from front to back: image archives, layers, trees.
//!
//! [`compression`] tells how a stream is compressed and undoes it, [`members`] goes through a tar stream. Both hold
//! little in memory whatever they are given. What is to become a file system is not read here; GNU tar unpacks that.

pub mod compression;
pub mod members;

pub use compression::Compression;
pub use members::{ArchiveMember, ArchiveMembers, MemberKind};
