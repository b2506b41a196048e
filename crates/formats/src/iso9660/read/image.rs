//! An image with its directories: finds files in them, and opens files.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use crate::iso9660::address::{BLOCK_SIZE, Block, Extent, Offset, Source};
use crate::iso9660::ecma119::{ASSOCIATED, CONTINUED, DIRECTORY};

use super::entry::{DirectoryEntry, EntryKind};
use super::error::{Error, Result};
use super::file::FileReader;
use super::record::{Record, records};
use super::rock_ridge::{Attributes, skip_length};
use super::source::read_exactly;
use super::volume::VolumeDescriptor;

/// How many directories deep a path may go.
pub(super) const MAX_DEPTH: usize = 64;
/// The longest directory that is read, in bytes: room for twenty thousand long names.
const MAX_DIRECTORY: u32 = 8 << 20;
/// How many directories are remembered, so that many files of one directory are found quickly...
const REMEMBERED: usize = 32;
/// ...and how many entries they may have together.
const REMEMBERED_ENTRIES: usize = 100_000;

/// An image whose volume descriptor and root directory have been found.
pub struct Iso<S = File> {
    source: Arc<S>,
    length: u64,
    pub(super) volume: VolumeDescriptor,
    /// `Some` where the image has Rock Ridge: how many bytes precede its entries.
    skip: Option<u8>,
    listings: Mutex<HashMap<Block, Arc<[DirectoryEntry]>>>,
}

impl<S> fmt::Debug for Iso<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iso").field("volume", &self.volume).field("length", &self.length).finish()
    }
}

impl<S: Source> Iso<S> {
    /// Reads the volume descriptor and the head of the root directory of `source`.
    pub fn open(source: S) -> Result<Self> {
        let length = source.length().map_err(|source| Error::Io { offset: Offset(0), source })?;
        let volume = VolumeDescriptor::read(&source, length)?;
        let root = read_exactly(&source, length, volume.root.start.offset(), BLOCK_SIZE)?;
        let skip = skip_length(Record::parse(&root)?.system_use);
        Ok(Self { source: Arc::new(source), length, volume, skip, listings: Mutex::default() })
    }

    pub fn source(&self) -> &S {
        &self.source
    }

    #[must_use]
    pub fn volume(&self) -> &VolumeDescriptor {
        &self.volume
    }

    /// Length of the image in bytes: that of the file or device.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// How many bytes of the volume the image lacks at its end; 0 for a whole one.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.volume.size.saturating_sub(self.length)
    }

    /// The entries of the directory at `path` (parts joined by `/`, empty for the root), in the image's order.
    pub fn list(&self, path: &str) -> Result<Arc<[DirectoryEntry]>> {
        let mut directory = self.entries(self.volume.root)?;
        for part in parts(path)? {
            let found = directory.iter().find(|entry| entry.name == part);
            let entry = found.ok_or_else(|| Error::NotFound(path.to_owned()))?;
            let extent = entry.directory().ok_or_else(|| Error::NotADirectory(path.to_owned()))?;
            directory = self.entries(extent)?;
        }
        Ok(directory)
    }

    pub fn entry(&self, path: &str) -> Result<DirectoryEntry> {
        let path = path.trim_matches('/');
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = match self.list(parent) {
            Err(Error::NotFound(_) | Error::NotADirectory(_)) => {
                return Err(Error::NotFound(path.to_owned()));
            }
            other => other?,
        };
        let found = directory.iter().find(|entry| entry.name == name);
        found.cloned().ok_or_else(|| Error::NotFound(path.to_owned()))
    }

    /// The entry of the file at `path`, whose extents hold nothing but its content.
    pub fn plain_file(&self, path: &str) -> Result<DirectoryEntry> {
        let entry = self.entry(path)?;
        if entry.kind != EntryKind::File {
            return Err(Error::NotAFile(path.to_owned()));
        }
        if entry.compressed {
            return Err(Error::Unsupported("it has compressed files"));
        }
        Ok(entry)
    }

    pub fn open_file(&self, path: &str) -> Result<FileReader<S>> {
        Ok(FileReader::new(Arc::clone(&self.source), self.plain_file(path)?.extents))
    }

    /// The entries of one directory, read once.
    pub(super) fn entries(&self, directory: Extent) -> Result<Arc<[DirectoryEntry]>> {
        let lock = || self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = lock().get(&directory.start) {
            return Ok(Arc::clone(entries));
        }
        let entries: Arc<[DirectoryEntry]> = self.read_directory(directory)?.into();
        let mut listings = lock();
        let remembered: usize = listings.values().map(|entries| entries.len()).sum();
        if listings.len() >= REMEMBERED || remembered >= REMEMBERED_ENTRIES {
            listings.clear();
        }
        listings.insert(directory.start, Arc::clone(&entries));
        Ok(entries)
    }

    fn read_directory(&self, directory: Extent) -> Result<Vec<DirectoryEntry>> {
        if directory.length > MAX_DIRECTORY {
            return Err(Error::Damaged("a directory is implausibly long"));
        }
        let bytes = read_exactly(&*self.source, self.length, directory.start.offset(), directory.length)?;
        let mut entries = Vec::new();
        // Extents of a file whose last record has not come yet.
        let mut extents: Vec<Extent> = Vec::new();
        let mut continued: &[u8] = &[];
        for record in records(&bytes) {
            let record = record?;
            if record.is_dot() || record.is(ASSOCIATED) {
                continue;
            }
            record.refuse_interleaved()?;
            if !extents.is_empty() && record.name != continued {
                return Err(Error::Damaged("a file in several extents has no end"));
            }
            extents.push(record.extent);
            if record.is(CONTINUED) {
                continued = record.name;
                continue;
            }
            entries.extend(self.entry_of(&record, std::mem::take(&mut extents))?);
        }
        if extents.is_empty() {
            Ok(entries)
        } else {
            Err(Error::Damaged("a file in several extents has no end"))
        }
    }

    /// The entry that `record` makes; none for a directory that is only stored here.
    fn entry_of(&self, record: &Record<'_>, extents: Vec<Extent>) -> Result<Option<DirectoryEntry>> {
        let attributes = match self.skip {
            Some(skip) => Attributes::read(&*self.source, self.length, record.system_use, skip)?,
            None => Attributes::default(),
        };
        if attributes.relocated {
            return Ok(None);
        }
        let name = match &attributes.name {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => record.plain_name(),
        };
        if matches!(&*name, "" | "." | "..") || name.contains(['/', '\0']) {
            return Err(Error::Damaged("a file has an impossible name"));
        }
        let (kind, extents) = if let Some(child) = attributes.child {
            (EntryKind::Directory, vec![self.own_extent(child)?])
        } else if record.is(DIRECTORY) {
            (EntryKind::Directory, extents)
        } else if attributes.is_symlink() {
            (EntryKind::Symlink, extents)
        } else if attributes.is_regular() {
            (EntryKind::File, extents)
        } else {
            (EntryKind::Special, extents)
        };
        Ok(Some(DirectoryEntry { name, kind, extents, compressed: attributes.compressed }))
    }

    /// The extent of the directory that begins at `start`, from its record of itself.
    fn own_extent(&self, start: Block) -> Result<Extent> {
        let block = read_exactly(&*self.source, self.length, start.offset(), BLOCK_SIZE)?;
        let own = Record::parse(&block)?;
        if own.name == [0] && own.is(DIRECTORY) && own.extent.start == start {
            Ok(own.extent)
        } else {
            Err(Error::Damaged("a relocated directory is not where it should be"))
        }
    }
}

/// The parts of a path. Too many are refused.
fn parts(path: &str) -> Result<impl Iterator<Item = &str>> {
    let parts = || path.split('/').filter(|part| !part.is_empty());
    if parts().count() > MAX_DEPTH { Err(Error::NotFound(path.to_owned())) } else { Ok(parts()) }
}
