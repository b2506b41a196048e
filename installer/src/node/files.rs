//! What applying a node document writes: a set of files, made without looking at any machine.

use std::fmt;

use crate::digest::Digest;

/// One file to be written below a root.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeFile {
    /// Path from the root, without a leading slash.
    pub path: String,
    /// Content. May hold secrets.
    pub bytes: Vec<u8>,
    /// Permissions.
    pub mode: u32,
}

impl NodeFile {
    /// A file of text.
    pub fn new(path: &str, mode: u32, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), bytes: text.into().into_bytes(), mode }
    }
}

impl fmt::Debug for NodeFile {
    /// Content is shown as its digest only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:o} {}", self.path, self.mode, Digest::of(&self.bytes))
    }
}
