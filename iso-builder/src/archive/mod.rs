//! Tar archives from untrusted sources, read once from front to back: image archives, layers, trees.
//!
//! [`compression`] recognises and undoes compression, [`members`] goes through a tar stream. Both use little memory
//! whatever they read. Archives that become a file system are not read here; GNU tar unpacks them.

pub mod compression;
pub mod members;

pub use compression::Compression;
pub use members::{ArchiveMember, ArchiveMembers, MemberKind};
