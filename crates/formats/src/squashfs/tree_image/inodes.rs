//! The tables of inodes and directories.
//!
//! Entries come with each directory behind what is in it, so that the places of all inodes are known that a listing names.

use std::collections::HashMap;

use super::contents::DataPlace;
use super::entries::{ImageEntry, ImageEntryKind};
use super::error::too_many;
use crate::squashfs::bytes::{narrow, put};
use crate::squashfs::directories::MOST_ENTRIES;
use crate::squashfs::error::ExpandResult;
use crate::squashfs::inodes::{DOTS, NONE, kinds};
use crate::squashfs::metadata::{BLOCK_BYTES, reference, stored_start};

/// Where the inode of a directory has the number of the directory that it is in.
const PARENT_AT: usize = 28;

/// Writes inodes and listings, entry by entry.
pub(super) struct InodeWriter {
    time: u32,
    inodes: Vec<u8>,
    directories: Vec<u8>,
    /// Where each inode is, by its number.
    references: Vec<u64>,
    /// Users and groups, and their numbers.
    owners: Vec<u32>,
    numbers_of_owners: HashMap<u32, u16>,
    /// By the numbers of entries, those that have several names.
    linked: HashMap<usize, Listed>,
    /// What is in the directories that are still to come, by their depths.
    listings: Vec<Vec<ListedName>>,
}

/// The finished tables.
pub(super) struct WrittenTables {
    pub(super) inodes: Vec<u8>,
    pub(super) directories: Vec<u8>,
    /// The entries of the export table.
    pub(super) references: Vec<u8>,
    /// 4 bytes for each.
    pub(super) owners: Vec<u8>,
    /// Where the root's inode is.
    pub(super) root: u64,
}

struct ListedName {
    name: Vec<u8>,
    listed: Listed,
}

/// An inode as listings name it.
#[derive(Clone, Copy)]
struct Listed {
    kind: u16,
    number: u32,
    /// In the bytes of the table.
    position: usize,
}

/// What the index of a directory has of a place in its listing.
struct IndexedName {
    /// In the listing.
    position: usize,
    name: Vec<u8>,
}

/// The run of entries that a header of a listing is about.
struct Run {
    header_at: usize,
    count: u32,
    start: u32,
    number: u32,
}

impl InodeWriter {
    /// All inodes get this time, in seconds since 1970.
    pub(super) fn at_time(time: u32) -> Self {
        Self {
            time,
            inodes: Vec::new(),
            directories: Vec::new(),
            references: Vec::new(),
            owners: Vec::new(),
            numbers_of_owners: HashMap::new(),
            linked: HashMap::new(),
            listings: Vec::new(),
        }
    }

    /// Adds the entry of this number. `attributes` is the number of its set.
    pub(super) fn add(
        &mut self,
        number: usize,
        entry: &ImageEntry,
        attributes: Option<u32>,
        place: &DataPlace,
    ) -> ExpandResult<()> {
        let listed = match self.linked.get(&entry.first) {
            Some(listed) => *listed,
            None => self.inode(entry, attributes, place)?,
        };
        if entry.names > 1 {
            self.linked.insert(number, listed);
        }
        if self.listings.len() <= entry.depth {
            self.listings.resize_with(entry.depth + 1, Vec::new);
        }
        self.listings[entry.depth].push(ListedName { name: entry.name().to_vec(), listed });
        Ok(())
    }

    pub(super) fn finish(self) -> WrittenTables {
        WrittenTables {
            // It is the last.
            root: self.references.last().copied().unwrap_or_default(),
            inodes: self.inodes,
            directories: self.directories,
            references: self.references.iter().flat_map(|place| place.to_le_bytes()).collect(),
            owners: self.owners.iter().flat_map(|owner| owner.to_le_bytes()).collect(),
        }
    }

    fn inode(
        &mut self,
        entry: &ImageEntry,
        attributes: Option<u32>,
        place: &DataPlace,
    ) -> ExpandResult<Listed> {
        let kind = match &entry.kind {
            ImageEntryKind::Directory => return self.directory(entry, attributes),
            ImageEntryKind::File(length) => return self.file(entry, attributes, *length, place),
            ImageEntryKind::Link(_) => kinds::LINK,
            ImageEntryKind::BlockDevice(_) => kinds::BLOCK_DEVICE,
            ImageEntryKind::CharacterDevice(_) => kinds::CHARACTER_DEVICE,
            ImageEntryKind::Pipe => kinds::PIPE,
            ImageEntryKind::Socket => kinds::SOCKET,
        };
        let listed = self.begin(kind, attributes.is_some(), entry)?;
        self.put32(entry.names);
        match &entry.kind {
            ImageEntryKind::Link(target) => {
                self.put32(narrow(target.len() as u64)?);
                self.inodes.extend(target);
            }
            ImageEntryKind::BlockDevice(device) | ImageEntryKind::CharacterDevice(device) => {
                self.put32(*device)
            }
            _ => {}
        }
        if let Some(attributes) = attributes {
            self.put32(attributes);
        }
        Ok(listed)
    }

    fn file(
        &mut self,
        entry: &ImageEntry,
        attributes: Option<u32>,
        length: u64,
        place: &DataPlace,
    ) -> ExpandResult<Listed> {
        let (fragment, offset) = place.fragment.map_or((NONE, 0), |place| (place.number, place.offset));
        let short = u32::try_from(length).ok().zip(u32::try_from(place.start).ok());
        let plain = attributes.is_none() && entry.names == 1 && place.bytes_of_holes == 0;
        let listed = match short.filter(|_| plain) {
            Some((length, start)) => {
                let listed = self.begin(kinds::FILE, false, entry)?;
                [start, fragment, offset, length].into_iter().for_each(|field| self.put32(field));
                listed
            }
            None => {
                let listed = self.begin(kinds::FILE, true, entry)?;
                for field in [place.start, length, place.bytes_of_holes] {
                    self.inodes.extend(field.to_le_bytes());
                }
                let attributes = attributes.unwrap_or(NONE);
                [entry.names, fragment, offset, attributes].into_iter().for_each(|field| self.put32(field));
                listed
            }
        };
        place.words.iter().for_each(|word| self.put32(*word));
        Ok(listed)
    }

    fn directory(&mut self, entry: &ImageEntry, attributes: Option<u32>) -> ExpandResult<Listed> {
        let names = self.listings.get_mut(entry.depth + 1).map(std::mem::take).unwrap_or_default();
        let at = self.directories.len();
        let index = self.listing(&names)?;
        let size = narrow((self.directories.len() - at) as u64 + u64::from(DOTS))?;
        // An empty one is nowhere.
        let (start, offset) = if names.is_empty() { (0, 0) } else { split(reference(at))? };
        let inside = names.iter().filter(|name| name.listed.kind == kinds::DIRECTORY);
        let links = narrow(2 + inside.clone().count() as u64)?;
        let short = u16::try_from(size).ok().filter(|_| index.is_empty() && attributes.is_none());
        let listed = self.begin(kinds::DIRECTORY, short.is_none(), entry)?;
        for name in inside {
            put(&mut self.inodes, name.listed.position + PARENT_AT, listed.number.to_le_bytes())?;
        }
        // That of the root is a number that no inode has.
        let parent = listed.number.saturating_add(1);
        if let Some(size) = short {
            self.put32(start);
            self.put32(links);
            self.put16(size);
            self.put16(offset);
            self.put32(parent);
            return Ok(listed);
        }
        for field in [links, size, start, parent] {
            self.put32(field);
        }
        // One more would only be slower to find.
        let index = &index[..index.len().min(usize::from(u16::MAX))];
        self.put16(u16::try_from(index.len()).unwrap_or(u16::MAX));
        self.put16(offset);
        self.put32(attributes.unwrap_or(NONE));
        for IndexedName { position, name } in index {
            self.put32(narrow(*position as u64)?);
            self.put32(narrow(stored_start(at + position))?);
            self.put32(narrow(name.len() as u64 - 1)?);
            self.inodes.extend(name);
        }
        Ok(listed)
    }

    /// Writes the listing of a directory: runs of entries, each below a header. The index has the runs that begin where more than a block of
    /// metadata came since the last one that it has.
    fn listing(&mut self, names: &[ListedName]) -> ExpandResult<Vec<IndexedName>> {
        let begin = self.directories.len();
        let (mut index, mut indexed) = (Vec::new(), begin);
        let mut run: Option<Run> = None;
        for ListedName { name, listed } in names {
            let Listed { kind, number, position } = *listed;
            let (start, offset) = split(reference(position))?;
            let is_far = self.directories.len() + 8 + name.len() - indexed > BLOCK_BYTES;
            let distance = |run: &Run| i16::try_from(i64::from(number) - i64::from(run.number)).ok();
            let fits = |run: &Run| {
                run.count < MOST_ENTRIES && run.start == start && distance(run).is_some() && !is_far
            };
            if !run.as_ref().is_some_and(fits) {
                let header_at = self.directories.len();
                if run.is_some() && is_far {
                    index.push(IndexedName { position: header_at - begin, name: name.clone() });
                    indexed = header_at;
                }
                // The number of entries is known at the end of the run.
                for field in [0, start, number] {
                    self.directories.extend(field.to_le_bytes());
                }
                run = Some(Run { header_at, count: 0, start, number });
            }
            let Some(run) = &mut run else { continue };
            // Counts and lengths are stored as one less than they are.
            put(&mut self.directories, run.header_at, run.count.to_le_bytes())?;
            run.count += 1;
            self.directories.extend(offset.to_le_bytes());
            self.directories.extend(distance(run).unwrap_or_default().to_le_bytes());
            self.directories.extend(kind.to_le_bytes());
            let length = u16::try_from(narrow(name.len() as u64 - 1)?).unwrap_or(u16::MAX);
            self.directories.extend(length.to_le_bytes());
            self.directories.extend(name);
        }
        Ok(index)
    }

    /// Writes what all inodes have.
    fn begin(&mut self, kind: u16, is_long: bool, entry: &ImageEntry) -> ExpandResult<Listed> {
        let position = self.inodes.len();
        self.references.push(reference(position));
        let number = narrow(self.references.len() as u64)?;
        let (user, group) = (self.owner(entry.user)?, self.owner(entry.group)?);
        self.put16(if is_long { kind + kinds::LONG } else { kind });
        self.put16(entry.mode);
        self.put16(user);
        self.put16(group);
        self.put32(self.time);
        self.put32(number);
        Ok(Listed { kind, number, position })
    }

    fn owner(&mut self, id: u32) -> ExpandResult<u16> {
        if let Some(number) = self.numbers_of_owners.get(&id) {
            return Ok(*number);
        }
        let number = u16::try_from(self.owners.len()).map_err(|_| too_many())?;
        self.owners.push(id);
        self.numbers_of_owners.insert(id, number);
        Ok(number)
    }

    fn put16(&mut self, value: u16) {
        self.inodes.extend(value.to_le_bytes());
    }

    fn put32(&mut self, value: u32) {
        self.inodes.extend(value.to_le_bytes());
    }
}

/// The start of a block and the place in it of a reference.
fn split(reference: u64) -> ExpandResult<(u32, u16)> {
    // Blocks hold 8 KiB.
    #[allow(clippy::cast_possible_truncation)]
    let place = reference as u16;
    Ok((narrow(reference >> 16)?, place))
}
