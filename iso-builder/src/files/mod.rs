//! Whole files and directories of the host: their digests, and second names for them. Of this crate's folders it uses none.

mod digest;
mod link;

pub use digest::{digest_of_file, digest_of_path};
pub use link::link_or_copy;
