//! What applying a node document writes: a set of files, made without looking at any machine.

use std::fmt;

use base::digest::Digest;

/// What a [`NodeFile`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileKind {
    /// A file with content.
    #[default]
    File,
    /// A symbolic link; the content is its target.
    Link,
}

/// One file, or one link, to be written below a root.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeFile {
    /// Path from the root, without a leading slash.
    pub path: String,
    /// Content. May hold secrets.
    pub bytes: Vec<u8>,
    /// Permissions; links have none.
    pub mode: u32,
    /// File or link.
    pub kind: FileKind,
}

impl NodeFile {
    /// A file of text.
    pub fn new(path: &str, mode: u32, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), bytes: text.into().into_bytes(), mode, kind: FileKind::File }
    }

    /// A symbolic link to `target`, which need not be there.
    #[must_use]
    pub fn link(path: &str, target: &str) -> Self {
        Self { path: path.to_owned(), bytes: target.as_bytes().to_vec(), mode: 0o777, kind: FileKind::Link }
    }
}

impl fmt::Debug for NodeFile {
    /// Content is shown as its digest only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:o} {}", self.path, self.mode, Digest::of(&self.bytes))
    }
}
