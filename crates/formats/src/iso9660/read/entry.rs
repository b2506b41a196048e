//! The entries of directories.

use crate::iso9660::address::Extent;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    /// A symbolic link. Links are not followed.
    Symlink,
    /// A device, a pipe or a socket.
    Special,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, by Rock Ridge if the image has it.
    pub name: String,
    pub kind: EntryKind,
    /// Where the content is, in order.
    pub extents: Vec<Extent>,
    /// The content is compressed in a way that this reader does not support.
    pub(super) compressed: bool,
}

impl DirectoryEntry {
    /// Length of the content in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.length)).sum()
    }

    pub(super) fn directory(&self) -> Option<Extent> {
        if self.kind == EntryKind::Directory { self.extents.first().copied() } else { None }
    }
}
