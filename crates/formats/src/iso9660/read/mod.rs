//! Reading ISO 9660 images without mounting them and without other programs.
//!
//! Level 3 (files of any length, in several extents) with Rock Ridge names, which is what [`super::write`] makes; plain
//! ISO 9660 names where an image has no Rock Ridge; Joliet and UDF are ignored. Whatever the bytes say, reading ends with
//! a value or an [`Error`]: memory, depth and loops are bounded.

mod entries;
mod entry;
mod error;
mod file;
mod image;
mod record;
mod rock_ridge;
mod source;
#[cfg(test)]
mod tests;
mod volume;

pub use entries::ImageEntries;
pub use entry::{DirectoryEntry, EntryKind};
pub use error::{Error, Result};
pub use file::FileReader;
pub use image::Iso;
pub use source::OffsetSource;
pub use volume::VolumeDescriptor;
