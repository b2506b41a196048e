use base::digest::Digest;
use serde::{Deserialize, Serialize};

/// A blob: its name and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Blob {
    /// Of the content.
    pub digest: Digest,
    /// In bytes.
    pub size: u64,
}
