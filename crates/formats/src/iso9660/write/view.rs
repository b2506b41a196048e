//! The addresses of an image as one of its two volumes counts them. Layout makes them, descriptors and records write them.

use crate::iso9660::address::{Block, Extent};

/// Where the two path tables of a view are, and how long each is in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathTables {
    pub(super) little: Block,
    pub(super) big: Block,
    pub(super) length: u32,
}

/// The addresses as one of the two volumes counts them.
#[derive(Debug)]
pub(super) struct VolumeView<'a> {
    pub(super) first: Block,
    /// The block after the ISO's last.
    pub(super) end: Block,
    pub(super) extension: Block,
    pub(super) directories: &'a [Extent],
    pub(super) files: &'a [Vec<Extent>],
}

impl VolumeView<'_> {
    /// A block as this volume counts it.
    pub(super) fn address(&self, block: Block) -> Block {
        Block(block.0.saturating_sub(self.first.0))
    }

    pub(super) fn blocks(&self) -> u32 {
        self.address(self.end).0
    }

    pub(super) fn extension(&self) -> Block {
        self.address(self.extension)
    }

    pub(super) fn directory(&self, index: usize) -> Extent {
        self.own(self.directories[index])
    }

    pub(super) fn file(&self, index: usize) -> Vec<Extent> {
        self.files[index].iter().map(|extent| self.own(*extent)).collect()
    }

    fn own(&self, extent: Extent) -> Extent {
        Extent { start: self.address(extent.start), length: extent.length }
    }
}
