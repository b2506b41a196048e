//! Reading and writing ISO 9660 images.
//!
//! | Module | What it does |
//! |---|---|
//! | [`address`] | blocks, positions and runs of bytes, and where bytes are read from |
//! | [`read`] | finds and opens the files of an image, whoever made it |
//! | [`write`] | the layout of an image that boots from discs and USB sticks, and all bytes except file contents |
//!
//! `medium` and `iso-builder` are the callers.

pub mod address;
mod ecma119;
pub mod read;
pub mod write;

pub use address::{BLOCK_SIZE, Block, Extent, Offset, Source};
pub use read::{
    DirectoryEntry, EntryKind, Error, FileReader, ImageEntries, Iso, OffsetSource, Result, VolumeDescriptor,
};
