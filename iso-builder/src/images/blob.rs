//! Blobs by name.

use base::digest::Digest;
use serde::{Deserialize, Serialize};

/// A blob: what it is called and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Blob {
    /// SHA-256 of the content.
    pub digest: Digest,
    /// Length in bytes.
    pub size: u64,
}
