//! An image of a directory tree, as the expanded form of a squashfs that exists nowhere: its tables are in memory, and its data is read
//! from the files when it is asked for. What writes the compressed form of an image writes that of this one.
//!
//! The bytes follow from names, contents, modes, owners and attributes alone: not from the file system, the order in which it lists
//! names, or the programs of the host.
//!
//! - Inodes and data are in the order of paths, each directory behind what is in it.
//! - Files of less than a block lie in fragments, side by side as far as they fit; the others in blocks, the last of which may be short.
//! - Files with the same content share their data, and files with several names are there once.
//! - Blocks of zeros are holes.
//! - Attributes are those that a squashfs can hold: `user.*`, `trusted.*` and `security.*`. `security.selinux` is left out, since each
//!   file of a host with SELinux has one that is about that host.

mod attributes;
mod contents;
mod entries;
mod error;
mod inodes;

use std::fmt;
use std::io;
use std::path::Path;

use self::attributes::AttributeSets;
use self::contents::{BLOCK_BYTES, Contents};
use self::entries::Entries;
use self::error::too_many;
use self::inodes::InodeWriter;
use super::error::ExpandError;
use super::expansion::{FRAGMENT_BYTES, ID_BYTES, REFERENCE_BYTES};
use super::metadata::{IndexedTable, Table};
use super::superblock::{self, Superblock};
use super::tables::Tables;
use crate::iso9660::{Offset, Source};

pub use self::error::TreeImageError;

/// The image of a directory tree, which must not change while this is read.
pub struct TreeImage {
    head: Vec<u8>,
    contents: Contents,
    tables: Vec<u8>,
}

impl fmt::Debug for TreeImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeImage").field("length", &self.bytes()).finish_non_exhaustive()
    }
}

impl TreeImage {
    /// Of the tree at `root`, whose files are read on `threads` processors. `time`, in seconds since 1970, is that of the image and of each file
    /// in it.
    pub fn of(root: &Path, time: u32, threads: usize) -> Result<Self, TreeImageError> {
        let entries = Entries::read(root)?;
        let contents = Contents::of(&entries, threads)?;
        let mut sets = AttributeSets::default();
        let mut writer = InodeWriter::at_time(time);
        for (number, entry) in entries.iter().enumerate() {
            let attributes = sets.add(&entry.attributes);
            writer
                .add(number, entry, attributes, contents.place(number))
                .map_err(TreeImageError::TooLarge)?;
        }
        let written = writer.finish();
        let fragments = contents.fragments();
        let mut superblock = Superblock::new(time, BLOCK_BYTES);
        superblock.inodes = count(&written.references, REFERENCE_BYTES)?;
        superblock.fragments = count(&fragments, FRAGMENT_BYTES)?;
        superblock.ids = count(&written.owners, ID_BYTES)?;
        superblock.root = written.root;
        let indexed = |bytes: Vec<u8>| IndexedTable { first: 0, bytes };
        let mut tables = Tables {
            superblock,
            inodes: Table::of(written.inodes),
            directories: Table::of(written.directories),
            fragments: (!fragments.is_empty()).then(|| indexed(fragments)),
            export: Some(indexed(written.references)),
            ids: indexed(written.owners),
            attributes: sets.tables(),
        };
        tables.place(superblock::LENGTH + contents.length());
        let head = tables.superblock.expanded().map_err(TreeImageError::TooLarge)?.to_vec();
        let mut bytes = Vec::new();
        tables.write(&mut bytes).map_err(|error| TreeImageError::TooLarge(ExpandError::Write(error)))?;
        Ok(Self { head, contents, tables: bytes })
    }

    fn bytes(&self) -> u64 {
        self.tables_at() + self.tables.len() as u64
    }

    fn tables_at(&self) -> u64 {
        self.head.len() as u64 + self.contents.length()
    }
}

/// How many entries of `length` bytes a table has.
fn count<N: TryFrom<usize>>(table: &[u8], length: usize) -> Result<N, TreeImageError> {
    N::try_from(table.len() / length).map_err(|_| TreeImageError::TooLarge(too_many()))
}

impl Source for TreeImage {
    fn read_at(&self, buffer: &mut [u8], Offset(offset): Offset) -> io::Result<usize> {
        let data = self.head.len() as u64;
        match offset {
            at if at < data => self.head.read_at(buffer, Offset(at)),
            at if at < self.tables_at() => self.contents.read_at(buffer, at - data),
            at => self.tables.read_at(buffer, Offset(at - self.tables_at())),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes())
    }
}
