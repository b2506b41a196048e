//! The table of directories: runs of entries whose inodes are in the same block, each with a header that names it.

use std::collections::BTreeSet;

use super::bytes::{narrow, put, u16_at, u32_at};
use super::error::{ExpandError, ExpandResult};
use super::metadata::Table;

/// The most entries that one header has (`SQUASHFS_DIR_COUNT`).
pub(super) const MOST_ENTRIES: u32 = 256;

/// Listings: where each begins in the bytes of the table, and its length.
#[derive(Default)]
pub(super) struct Listings(BTreeSet<(usize, u32)>);

impl Listings {
    pub(super) fn add(&mut self, at: usize, length: u32) {
        if length > 0 {
            self.0.insert((at, length));
        }
    }

    /// Lets all headers name blocks of `inodes` by their new starts.
    pub(super) fn move_inodes(&self, directories: &mut Table, inodes: &Table) -> ExpandResult<()> {
        // Overlapping listings could be walked without end.
        let total: u64 = self.0.iter().map(|(_, length)| u64::from(*length)).sum();
        if total > directories.bytes.len() as u64 {
            return Err(ExpandError::Damaged("directories overlap"));
        }
        for (at, length) in &self.0 {
            listing(&mut directories.bytes, *at, *length, inodes)?;
        }
        Ok(())
    }
}

fn listing(bytes: &mut [u8], mut at: usize, length: u32, inodes: &Table) -> ExpandResult<()> {
    let end = at + length as usize;
    while at < end {
        let count = u32_at(bytes, at)?;
        if count >= MOST_ENTRIES {
            return Err(ExpandError::Damaged("a directory has too many entries below one header"));
        }
        let start = inodes.moved(u32_at(bytes, at + 4)?.into())?;
        put(bytes, at + 4, narrow(start)?.to_le_bytes())?;
        at += 12;
        // Counts and lengths are stored as one less than they are.
        for _ in 0..=count {
            at += 9 + usize::from(u16_at(bytes, at + 6)?);
        }
    }
    if at != end {
        return Err(ExpandError::Damaged("a directory does not end with an entry"));
    }
    Ok(())
}
