//! Files and directories of the host: their digests, what is known of them from before, hard links to them, and readers of them. It uses no other folder of this crate.

mod digest;
mod known;
mod link;
mod reporting;

pub use digest::{CachedFile, TreeHasher, digest_of_file, digest_of_path};
pub use known::KnownFiles;
pub use link::link_or_copy;
pub use reporting::ReportingReader;
