//! ISO 9660 images, read and written in the same words.
//!
//! | Module | What it does |
//! |---|---|
//! | [`address`] | blocks, positions and runs of bytes, and where bytes are read from |
//! | [`read`] | finds and opens the files of an image, whoever made it |
//! | [`write`] | says where everything lies on an image that boots from discs and sticks, and makes all bytes but the files' |
//!
//! `medium` and `iso-builder` are the callers.

pub mod address;
mod ecma119;
pub mod read;
pub mod write;

pub use address::{BLOCK_SIZE, Block, Extent, Offset, Source};
pub use read::{
    DirectoryEntry, EntryKind, Error, FileReader, Iso, OffsetSource, Result, VolumeDescriptor, Walk,
};
