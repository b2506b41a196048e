//! The tables behind the data: inodes, directories, fragments, owners and attributes. Where they lie in an image follows from where its
//! data ends.

use std::io::{self, Write};

use super::metadata::{IndexedTable, Table};
use super::superblock::{ABSENT, Superblock};
use super::xattrs::{self, AttributeTables};

/// The length of an image is a multiple of this, as with `mksquashfs`: whole sectors of every disk.
const PADDING: u64 = 4096;

/// The superblock and the tables that it names, stored as they are.
#[derive(Clone)]
pub(super) struct Tables {
    pub(super) superblock: Superblock,
    pub(super) inodes: Table,
    pub(super) directories: Table,
    pub(super) fragments: Option<IndexedTable>,
    pub(super) export: Option<IndexedTable>,
    pub(super) ids: IndexedTable,
    pub(super) attributes: Option<AttributeTables>,
}

impl Tables {
    /// The length of the image, padded.
    pub(super) fn image_length(&self) -> u64 {
        self.superblock.bytes_used.next_multiple_of(PADDING)
    }

    /// Whether both say the same of an expanded image.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let bytes = |tables: &Self| {
            let mut bytes = tables.superblock.expanded().ok()?.to_vec();
            tables.write(&mut bytes).ok()?;
            Some(bytes)
        };
        let own = bytes(self);
        own.is_some() && own == bytes(other)
    }

    /// Gives the tables their places in an image whose data ends at `data_end`. They keep the order that the kernel wants.
    pub(super) fn place(&mut self, data_end: u64) {
        let superblock = &mut self.superblock;
        superblock.inode_table = data_end;
        superblock.directory_table = superblock.inode_table + self.inodes.length();
        let mut end = superblock.directory_table + self.directories.length();
        let mut indexed = |table: &IndexedTable| {
            let index = end + table.length();
            end = index + table.index_length();
            index
        };
        superblock.fragment_table = self.fragments.as_ref().map_or(ABSENT, &mut indexed);
        superblock.export_table = self.export.as_ref().map_or(ABSENT, &mut indexed);
        superblock.id_table = indexed(&self.ids);
        superblock.xattr_table = ABSENT;
        if let Some(attributes) = &self.attributes {
            superblock.xattr_table = end + attributes.values.length() + attributes.sets.length();
            end = superblock.xattr_table + xattrs::HEADER_BYTES as u64 + attributes.sets.index_length();
        }
        superblock.bytes_used = end;
    }

    /// Writes all but the superblock, and the padding.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.inodes.write(out)?;
        self.directories.write(out)?;
        let mut indexed = |table: &IndexedTable, index: u64| {
            table.write_blocks(out)?;
            table.write_index(index - table.length(), out)
        };
        if let Some(fragments) = &self.fragments {
            indexed(fragments, self.superblock.fragment_table)?;
        }
        if let Some(export) = &self.export {
            indexed(export, self.superblock.export_table)?;
        }
        indexed(&self.ids, self.superblock.id_table)?;
        if let Some(attributes) = &self.attributes {
            let header = self.superblock.xattr_table;
            let sets = header - attributes.sets.length();
            attributes.values.write(out)?;
            attributes.sets.write_blocks(out)?;
            out.write_all(&(sets - attributes.values.length()).to_le_bytes())?;
            out.write_all(&attributes.count().to_le_bytes())?;
            attributes.sets.write_index(sets, out)?;
        }
        let padding = self.image_length() - self.superblock.bytes_used;
        io::copy(&mut io::Read::take(io::repeat(0), padding), out).map(drop)
    }
}
