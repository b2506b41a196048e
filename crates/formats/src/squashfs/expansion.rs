//! The expanded form of an image: planned from its metadata, then written in one go.
//!
//! The plan holds all metadata (at most 64 MiB) and 24 bytes for each block of data (at most 48 MiB, 0.2 MiB for an image of
//! 1 GB). Writing it takes up to 8 MiB for each thread beside that.

use std::fmt;
use std::io::Write;
use std::ops::Range;

use base::size::ByteSize;

use super::bytes::{narrow, put, u32_at, u64_at};
use super::data::{BlockSet, Blocks, STORED, is_touched};
use super::directories::Listings;
use super::error::{ExpandError, ExpandResult};
use super::inodes::{FileInode, Inode, inode};
use super::metadata::{IndexedTable, MetadataReader, Table, read_exactly};
use super::superblock::{self, ABSENT, Superblock};
use super::tables::Tables;
use super::xattrs::AttributeTables;
use crate::iso9660::Source;

pub(super) const FRAGMENT_BYTES: usize = 16;
pub(super) const REFERENCE_BYTES: usize = 8;
pub(super) const ID_BYTES: usize = 4;
/// Where an inode has its number.
const NUMBER_AT: usize = 12;

/// The expanded form of the image in a source, ready to be written.
pub struct Expansion<'s, S> {
    pub(super) source: &'s S,
    /// Of the compressed image.
    pub(super) length: u64,
    pub(super) blocks: Blocks,
    /// Those of the expanded image.
    pub(super) tables: Tables,
}

impl<S> fmt::Debug for Expansion<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expansion").field("superblock", &self.tables.superblock).finish_non_exhaustive()
    }
}

impl<'s, S: Source> Expansion<'s, S> {
    /// Reads the metadata of the image at the start of `source` and computes where everything will be.
    pub fn plan(source: &'s S) -> ExpandResult<Self> {
        let available = source.length().map_err(|error| ExpandError::Read(0, error))?;
        if available < superblock::LENGTH {
            return Err(ExpandError::NotSquashfs);
        }
        let first = read_exactly(source, available, 0, superblock::LENGTH as usize)?;
        let superblock = Superblock::read(&first)?;
        let length = superblock.bytes_used;
        if length > available {
            return Err(ExpandError::Truncated { needed: length, length: available });
        }
        let mut reader = MetadataReader::new(source, length)?;

        let attributes = match superblock.xattr_table {
            ABSENT => None,
            at => Some(AttributeTables::read(&mut reader, at)?),
        };
        let ids = usize::from(superblock.ids) * ID_BYTES;
        if ids == 0 || superblock.inodes == 0 {
            return Err(ExpandError::Damaged("it has no owners or no inodes"));
        }
        let ids = reader.indexed(superblock.id_table, ids)?;
        let export = match superblock.export_table {
            ABSENT => None,
            at => Some(reader.indexed(at, (superblock.inodes as usize).saturating_mul(REFERENCE_BYTES))?),
        };
        let fragments = match superblock.fragments {
            0 => None,
            count => Some(
                reader.indexed(superblock.fragment_table, (count as usize).saturating_mul(FRAGMENT_BYTES))?,
            ),
        };
        // The kernel wants this order of the tables too (`squashfs_fill_super`).
        let directories_end = fragments.as_ref().or(export.as_ref()).map_or(ids.first, |table| table.first);
        let inodes = reader.table(superblock.inode_table, superblock.directory_table)?;
        let directories = reader.table(superblock.directory_table, directories_end)?;

        let survey = InodeSurvey::of(&superblock, &inodes, &directories, fragments.as_ref())?;
        let blocks = survey.blocks.place(superblock::LENGTH)?;
        let tables = Tables { superblock, inodes, directories, fragments, export, ids, attributes };
        let mut expansion = Self { source, length, blocks, tables };
        survey.listings.move_inodes(&mut expansion.tables.directories, &expansion.tables.inodes)?;
        expansion.move_references()?;
        expansion.move_fragments(&survey.used)?;
        expansion.move_inodes()?;
        expansion.tables.place(expansion.blocks.end);
        Ok(expansion)
    }

    /// The length of the expanded image, padded.
    #[must_use]
    pub fn length(&self) -> ByteSize {
        ByteSize::bytes(self.tables.image_length())
    }

    /// Writes the expanded image, from its first byte to its last; blocks are unpacked on `threads` processors. The bytes
    /// are the same for any number of them.
    pub fn write(&self, threads: usize, out: &mut dyn Write) -> ExpandResult<()> {
        out.write_all(&self.tables.superblock.expanded()?).map_err(ExpandError::Write)?;
        self.blocks.write(self.source, self.length, threads, out)?;
        self.tables.write(out).map_err(ExpandError::Write)
    }

    /// Whether both are of the same image, as far as its metadata tells: files, names, and the lengths of all blocks.
    #[must_use]
    pub fn is_like<T: Source>(&self, other: &Expansion<'_, T>) -> bool {
        self.blocks.is_like(&other.blocks) && self.tables.is_like(&other.tables)
    }

    /// The inode numbers of the files that have data in one of these places of the expanded image, in bytes. It is that which stat(2)
    /// tells of a file.
    pub fn files_in(&self, places: &[Range<u64>]) -> ExpandResult<Vec<u32>> {
        let touched = |data: Range<u64>| is_touched(&data, places);
        let (table, block_size) = (&self.tables.inodes.bytes, self.tables.superblock.block_size);
        let (mut numbers, mut at) = (Vec::new(), 0);
        while at < table.len() {
            let (inode, next) = inode(table, at, block_size)?;
            if let Inode::File(file) = inode
                && (touched(self.blocks_of(&file)?) || touched(self.tail_of(&file)?))
            {
                numbers.push(u32_at(table, at + NUMBER_AT)?);
            }
            at = next;
        }
        Ok(numbers)
    }

    /// The same for places of the image that the plan was made of.
    pub fn files_stored_in(&self, places: &[Range<u64>]) -> ExpandResult<Vec<u32>> {
        self.files_in(&self.blocks.touched(places))
    }

    fn blocks_of(&self, file: &FileInode) -> ExpandResult<Range<u64>> {
        let mut end = file.start;
        for at in file.lengths.clone().step_by(4) {
            end = end.saturating_add((u32_at(&self.tables.inodes.bytes, at)? & !STORED).into());
        }
        Ok(file.start..end)
    }

    /// Where the end of a file is that lies in a fragment; an empty range without one.
    fn tail_of(&self, file: &FileInode) -> ExpandResult<Range<u64>> {
        let (Some(tail), Some(fragments)) = (&file.tail, &self.tables.fragments) else { return Ok(0..0) };
        let fragment = u64_at(&fragments.bytes, (tail.fragment as usize).saturating_mul(FRAGMENT_BYTES))?;
        let start = fragment.saturating_add(tail.offset.into());
        Ok(start..start.saturating_add(file.size % u64::from(self.tables.superblock.block_size)))
    }

    /// Where in the table of inodes each entry of the export table leads to.
    #[cfg(test)]
    pub(super) fn export_references(&self) -> Option<Vec<usize>> {
        let entries = &self.tables.export.as_ref()?.bytes;
        let place = |at: usize| {
            let reference = u64_at(entries, at).ok()?;
            // The starts of the plan are already those of the expanded form, where blocks are full but for the last.
            let block = usize::try_from(reference >> 16).ok()? / (super::metadata::BLOCK_BYTES + 2);
            Some(block * super::metadata::BLOCK_BYTES + usize::try_from(reference & 0xffff).ok()?)
        };
        (0..entries.len()).step_by(REFERENCE_BYTES).map(place).collect()
    }

    #[cfg(test)]
    pub(super) fn inode_bytes(&self) -> &[u8] {
        &self.tables.inodes.bytes
    }

    /// Lets the superblock and the export table name inodes by their new places.
    fn move_references(&mut self) -> ExpandResult<()> {
        self.tables.superblock.root = self.tables.inodes.moved_reference(self.tables.superblock.root)?;
        let Some(export) = &mut self.tables.export else { return Ok(()) };
        for at in (0..export.bytes.len()).step_by(REFERENCE_BYTES) {
            let moved = self.tables.inodes.moved_reference(u64_at(&export.bytes, at)?)?;
            put(&mut export.bytes, at, moved.to_le_bytes())?;
        }
        Ok(())
    }

    /// Lets the fragment table name fragments by their new places and lengths. One that no file uses is left out.
    fn move_fragments(&mut self, used: &[u32]) -> ExpandResult<()> {
        let Some(fragments) = &mut self.tables.fragments else { return Ok(()) };
        for (number, used) in used.iter().enumerate() {
            let at = number * FRAGMENT_BYTES;
            let start = match used {
                0 => 0,
                _ => self.blocks.moved(u64_at(&fragments.bytes, at)?)?,
            };
            put(&mut fragments.bytes, at, start.to_le_bytes())?;
            put(&mut fragments.bytes, at + 8, (used | STORED).to_le_bytes())?;
        }
        Ok(())
    }

    /// Lets inodes name data and directories by their new places and lengths.
    fn move_inodes(&mut self) -> ExpandResult<()> {
        let block_size = self.tables.superblock.block_size;
        let mut at = 0;
        while at < self.tables.inodes.bytes.len() {
            let (inode, next) = inode(&self.tables.inodes.bytes, at, block_size)?;
            match inode {
                Inode::File(file) => {
                    move_file(&mut self.tables.inodes.bytes, &file, block_size, &self.blocks)?
                }
                Inode::Directory(directory) => {
                    let start = match directory.length {
                        0 => 0,
                        _ => narrow(self.tables.directories.moved(directory.start.into())?)?,
                    };
                    put(&mut self.tables.inodes.bytes, directory.at_start, start.to_le_bytes())?;
                    for at in directory.at_index_starts {
                        let moved =
                            self.tables.directories.moved(u32_at(&self.tables.inodes.bytes, at)?.into())?;
                        put(&mut self.tables.inodes.bytes, at, narrow(moved)?.to_le_bytes())?;
                    }
                }
                Inode::Other => {}
            }
            at = next;
        }
        Ok(())
    }
}

/// The data blocks, directory listings and fragments that inodes refer to.
struct InodeSurvey {
    blocks: BlockSet,
    listings: Listings,
    /// How much of each fragment files use.
    used: Vec<u32>,
}

impl InodeSurvey {
    fn of(
        superblock: &Superblock,
        inodes: &Table,
        directories: &Table,
        fragments: Option<&IndexedTable>,
    ) -> ExpandResult<Self> {
        let entries = fragments.map_or(&[][..], |table| &table.bytes);
        let used = vec![0; entries.len() / FRAGMENT_BYTES];
        let mut survey = Self { blocks: BlockSet::default(), listings: Listings::default(), used };
        let mut at = 0;
        for _ in 0..superblock.inodes {
            let (inode, next) = inode(&inodes.bytes, at, superblock.block_size)?;
            match inode {
                Inode::File(file) => survey.file(&inodes.bytes, &file, superblock.block_size)?,
                Inode::Directory(directory) if directory.length > 0 => {
                    let listing = directories.position(directory.start.into(), directory.offset)?;
                    survey.listings.add(listing, directory.length);
                }
                Inode::Directory(_) | Inode::Other => {}
            }
            at = next;
            if at > inodes.bytes.len() {
                return Err(ExpandError::Damaged("an inode is longer than its table"));
            }
        }
        if at != inodes.bytes.len() {
            return Err(ExpandError::Damaged("there are more inodes than there should be"));
        }
        for (entry, used) in entries.chunks(FRAGMENT_BYTES).zip(&survey.used) {
            if *used > 0 {
                survey.blocks.add(u64_at(entry, 0)?, u32_at(entry, 8)?, *used, superblock.block_size)?;
            }
        }
        Ok(survey)
    }

    fn file(&mut self, inodes: &[u8], file: &FileInode, block_size: u32) -> ExpandResult<()> {
        let (mut start, mut left) = (file.start, file.size);
        for length in file.lengths.clone().step_by(4) {
            let plain = block_size.min(u32::try_from(left).unwrap_or(u32::MAX));
            left -= u64::from(plain);
            match u32_at(inodes, length)? {
                // A hole.
                0 => {}
                word => start = start.saturating_add(self.blocks.add(start, word, plain, block_size)?.into()),
            }
        }
        let Some(tail) = &file.tail else { return Ok(()) };
        let used = usize::try_from(tail.fragment).ok().and_then(|number| self.used.get_mut(number));
        let used = used.ok_or(ExpandError::Damaged("a file ends in a fragment that is not there"))?;
        // The rest is shorter than a block.
        let end = u64::from(tail.offset) + left;
        match u32::try_from(end).ok().filter(|end| *end <= block_size) {
            Some(end) => *used = end.max(*used),
            None => return Err(ExpandError::Damaged("a file ends beyond its fragment")),
        }
        Ok(())
    }
}

/// Lets a file name its blocks by their new places and lengths.
fn move_file(inodes: &mut [u8], file: &FileInode, block_size: u32, blocks: &Blocks) -> ExpandResult<()> {
    let (mut first, mut left) = (None, file.size);
    for at in file.lengths.clone().step_by(4) {
        let plain = block_size.min(u32::try_from(left).unwrap_or(u32::MAX));
        left -= u64::from(plain);
        if u32_at(inodes, at)? == 0 {
            continue;
        }
        put(inodes, at, (plain | STORED).to_le_bytes())?;
        if first.is_none() {
            first = Some(blocks.moved(file.start)?);
        }
    }
    // One without blocks begins nowhere.
    let start = first.unwrap_or(0);
    match file.wide {
        true => put(inodes, file.at_start, start.to_le_bytes()),
        false => put(inodes, file.at_start, narrow(start)?.to_le_bytes()),
    }
}
