//! Files and directories of the host: their digests, what is known of them from before, and hard links to them. It uses no other folder of this crate.

mod digest;
mod known;
mod link;

pub use digest::{CachedFile, digest_of_file, digest_of_path};
pub use known::KnownFiles;
pub use link::link_or_copy;
