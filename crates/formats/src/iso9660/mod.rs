//! Reading ISO 9660 images without mounting them and without other programs. `media::iso` writes them.
//!
//! Level 3 (files of any length, in several extents) with Rock Ridge names, which is what the builder makes;
//! plain ISO 9660 names where an image has no Rock Ridge; Joliet and UDF are ignored. Whatever the bytes say,
//! reading ends with a value or an [`Error`]: memory, depth and loops are bounded. `medium` is the main caller.

pub mod address;
mod file;
mod record;
mod rock_ridge;
mod source;
#[cfg(test)]
mod tests;
mod volume;
mod walk;

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

pub use file::FileReader;
pub use source::{BLOCK_SIZE, Behind, Block, Extent, Offset, Source};
pub use volume::Volume;
pub use walk::Walk;

use record::Record;
use rock_ridge::Attributes;
use source::read_exactly;

/// The longest directory that is read, in bytes: room for twenty thousand long names.
const MAX_DIRECTORY: u32 = 8 << 20;
/// How many directories deep a path may go.
const MAX_DEPTH: usize = 64;
/// How many directories are remembered, so that many files of one directory are found quickly...
const REMEMBERED: usize = 32;
/// ...and how many entries they may have together.
const REMEMBERED_ENTRIES: usize = 100_000;

/// Why an image, or something in it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something else, or nothing.
    #[error("not an ISO 9660 image")]
    NotIso,
    /// An ISO 9660 image that contradicts itself.
    #[error("the ISO 9660 image is damaged: {0}")]
    Damaged(&'static str),
    /// An ISO 9660 image of a kind that is not read here.
    #[error("the ISO 9660 image cannot be read: {0}")]
    Unsupported(&'static str),
    /// The image is shorter than its own directories say.
    #[error("the ISO 9660 image is cut off: it has {length} bytes and should have at least {needed}")]
    Truncated {
        /// Where the data that was asked for ends, in bytes.
        needed: u64,
        /// Where the image ends, in bytes.
        length: u64,
    },
    /// There is no such file or directory.
    #[error("{0} is not in the image")]
    NotFound(String),
    /// A directory, a link or a device where a file is needed.
    #[error("{0} is not a regular file")]
    NotAFile(String),
    /// Something else where a directory is needed.
    #[error("{0} is not a directory")]
    NotADirectory(String),
    /// The file or device that holds the image.
    #[error("reading the image at byte {offset}")]
    Io {
        /// Where.
        offset: Offset,
        /// Why.
        source: io::Error,
    },
}

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// A missing file keeps its kind, so that callers can treat images and directories alike.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound(_) => io::ErrorKind::NotFound,
            Error::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            Error::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

/// What an entry of a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file with content.
    File,
    /// A directory.
    Directory,
    /// A symbolic link. Links are not followed.
    Symlink,
    /// A device, a pipe or a socket.
    Special,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, by Rock Ridge if the image has it.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Where the content is, in order.
    pub extents: Vec<Extent>,
    /// The content is compressed in a way that is not read here.
    compressed: bool,
}

impl Entry {
    /// Length of the content in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.length)).sum()
    }

    fn directory(&self) -> Option<Extent> {
        if self.kind == Kind::Directory { self.extents.first().copied() } else { None }
    }
}

/// An image whose volume descriptor and root directory have been found.
pub struct Iso<S = File> {
    source: Arc<S>,
    length: u64,
    volume: Volume,
    /// `Some` where the image has Rock Ridge: how many bytes precede its entries.
    skip: Option<u8>,
    listings: Mutex<HashMap<Block, Arc<[Entry]>>>,
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
        let volume = Volume::read(&source, length)?;
        let root = read_exactly(&source, length, volume.root.start.offset(), BLOCK_SIZE)?;
        let skip = rock_ridge::skip(Record::parse(&root)?.system_use);
        Ok(Self { source: Arc::new(source), length, volume, skip, listings: Mutex::default() })
    }

    /// Where its bytes are.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// What the image says about itself.
    #[must_use]
    pub fn volume(&self) -> &Volume {
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
    pub fn list(&self, path: &str) -> Result<Arc<[Entry]>> {
        let mut directory = self.entries(self.volume.root)?;
        for part in parts(path)? {
            let found = directory.iter().find(|entry| entry.name == part);
            let entry = found.ok_or_else(|| Error::NotFound(path.to_owned()))?;
            let extent = entry.directory().ok_or_else(|| Error::NotADirectory(path.to_owned()))?;
            directory = self.entries(extent)?;
        }
        Ok(directory)
    }

    /// The entry at `path`.
    pub fn entry(&self, path: &str) -> Result<Entry> {
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
    pub fn plain_file(&self, path: &str) -> Result<Entry> {
        let entry = self.entry(path)?;
        if entry.kind != Kind::File {
            return Err(Error::NotAFile(path.to_owned()));
        }
        if entry.compressed {
            return Err(Error::Unsupported("it has compressed files"));
        }
        Ok(entry)
    }

    /// The content of the file at `path`.
    pub fn open_file(&self, path: &str) -> Result<FileReader<S>> {
        Ok(FileReader::new(Arc::clone(&self.source), self.plain_file(path)?.extents))
    }

    /// Everything in the image with its path, each directory before its content.
    #[must_use]
    pub fn walk(&self) -> Walk<'_, S> {
        Walk::new(self)
    }

    /// The entries of one directory, read once.
    fn entries(&self, directory: Extent) -> Result<Arc<[Entry]>> {
        let lock = || self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = lock().get(&directory.start) {
            return Ok(Arc::clone(entries));
        }
        let entries: Arc<[Entry]> = self.read_directory(directory)?.into();
        let mut listings = lock();
        let remembered: usize = listings.values().map(|entries| entries.len()).sum();
        if listings.len() >= REMEMBERED || remembered >= REMEMBERED_ENTRIES {
            listings.clear();
        }
        listings.insert(directory.start, Arc::clone(&entries));
        Ok(entries)
    }

    fn read_directory(&self, directory: Extent) -> Result<Vec<Entry>> {
        if directory.length > MAX_DIRECTORY {
            return Err(Error::Damaged("a directory is implausibly long"));
        }
        let bytes = read_exactly(&*self.source, self.length, directory.start.offset(), directory.length)?;
        let mut entries = Vec::new();
        // Extents of a file whose last record has not come yet.
        let mut extents: Vec<Extent> = Vec::new();
        let mut continued: &[u8] = &[];
        for record in record::records(&bytes) {
            let record = record?;
            if record.is_dot() || record.is(record::ASSOCIATED) {
                continue;
            }
            record.refuse_interleaved()?;
            if !extents.is_empty() && record.name != continued {
                return Err(Error::Damaged("a file in several extents has no end"));
            }
            extents.push(record.extent);
            if record.is(record::CONTINUED) {
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
    fn entry_of(&self, record: &Record<'_>, extents: Vec<Extent>) -> Result<Option<Entry>> {
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
            (Kind::Directory, vec![self.own_extent(child)?])
        } else if record.is(record::DIRECTORY) {
            (Kind::Directory, extents)
        } else if attributes.is_symlink() {
            (Kind::Symlink, extents)
        } else if attributes.is_regular() {
            (Kind::File, extents)
        } else {
            (Kind::Special, extents)
        };
        Ok(Some(Entry { name, kind, extents, compressed: attributes.compressed }))
    }

    /// The extent of the directory that begins at `start`, from its record of itself.
    fn own_extent(&self, start: Block) -> Result<Extent> {
        let block = read_exactly(&*self.source, self.length, start.offset(), BLOCK_SIZE)?;
        let own = Record::parse(&block)?;
        if own.name == [0] && own.is(record::DIRECTORY) && own.extent.start == start {
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
