//! Files and directories of the host: their digests, and hard links to them. It uses no other folder of this crate.

mod digest;
mod link;

pub use digest::{CachedFile, digest_of_file, digest_of_path};
pub use link::link_or_copy;
