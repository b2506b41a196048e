//! Walks over all entries of an image.

use std::collections::HashSet;
use std::sync::Arc;

use super::entry::DirectoryEntry;
use super::error::{Error, Result};
use super::image::{Iso, MAX_DEPTH};
use crate::iso9660::address::{Block, Extent, Source};

/// Yields the path and the entry of everything in an image. After an error it ends.
#[allow(missing_debug_implementations)]
pub struct ImageEntries<'a, S> {
    iso: &'a Iso<S>,
    /// The directories that are open: path with a final `/` (empty for the root), entries, next entry.
    open: Vec<(String, Arc<[DirectoryEntry]>, usize)>,
    /// The directories so far. One that comes twice is a loop: there are no hard links to directories.
    seen: HashSet<Block>,
    begun: bool,
}

impl<S: Source> Iso<S> {
    /// Everything in the image with its path, each directory before its content.
    #[must_use]
    pub fn walk(&self) -> ImageEntries<'_, S> {
        ImageEntries::new(self)
    }
}

impl<'a, S: Source> ImageEntries<'a, S> {
    fn new(iso: &'a Iso<S>) -> Self {
        Self { iso, open: Vec::new(), seen: HashSet::new(), begun: false }
    }

    fn enter(&mut self, path: String, directory: Extent) -> Result<()> {
        if !self.seen.insert(directory.start) {
            return Err(Error::Damaged("its directories form a loop"));
        }
        if self.open.len() > MAX_DEPTH {
            return Err(Error::Damaged("its directories are nested too deeply"));
        }
        self.open.push((path, self.iso.entries(directory)?, 0));
        Ok(())
    }

    fn step(&mut self) -> Result<Option<(String, DirectoryEntry)>> {
        if !self.begun {
            self.begun = true;
            self.enter(String::new(), self.iso.volume.root)?;
        }
        while let Some((path, entries, next)) = self.open.last_mut() {
            let Some(entry) = entries.get(*next).cloned() else {
                self.open.pop();
                continue;
            };
            *next += 1;
            let path = format!("{path}{}", entry.name);
            if let Some(directory) = entry.directory() {
                self.enter(format!("{path}/"), directory)?;
            }
            return Ok(Some((path, entry)));
        }
        Ok(None)
    }
}

impl<S: Source> Iterator for ImageEntries<'_, S> {
    type Item = Result<(String, DirectoryEntry)>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.step();
        if item.is_err() {
            self.open.clear();
        }
        item.transpose()
    }
}
