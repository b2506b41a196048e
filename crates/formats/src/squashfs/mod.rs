//! squashfs 4.0, the file system of the OS image: made of a directory tree, and from its compressed into its expanded form and back.
//!
//! Media carry the compressed form. A slot on a disk holds the *expanded* form: the same file system with every block of
//! data and of metadata stored as it is. It is a pure function of the compressed form for which only a decompressor is
//! needed, so that its digest can stand in a release manifest, and a patch between the expanded forms of two releases is
//! small where one between compressed forms is not.
//!
//! | Module | What it does |
//! |---|---|
//! | [`expansion`] | computes where everything will be, then writes the expanded form from its first to its last byte |
//! | [`compression`] | writes the compressed form, with the blocks of an earlier image |
//! | [`tree_image`] | lays out a directory tree as an expanded image |
//! | `superblock` | the first 96 bytes |
//! | `tables` | all tables of an image, and their places |
//! | `metadata` | tables in blocks of 8 KiB, and how places in them move |
//! | `inodes`, `directories`, `xattrs` | what in these tables names a place |
//! | `data` | blocks of files and fragments |
//!
//! The format is that of the kernel's `Documentation/filesystems/squashfs.rst` and `fs/squashfs/squashfs_fs.h`. No byte of
//! an image is trusted: reading it ends with a value or an [`ExpandError`], and memory is bounded ([`expansion`] says by what).

mod bytes;
pub mod compression;
mod data;
mod directories;
mod error;
pub mod expansion;
mod inodes;
mod metadata;
mod superblock;
mod tables;
#[cfg(test)]
mod tests;
pub mod tree_image;
mod xattrs;

pub use compression::Compression;
pub use error::{ExpandError, ExpandResult};
pub use expansion::Expansion;
pub use tree_image::{TreeImage, TreeImageError};
