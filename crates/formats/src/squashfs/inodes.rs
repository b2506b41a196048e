//! The table of inodes: the addresses in each one, and where they are stored.

use std::ops::Range;

use super::bytes::{u16_at, u32_at, u64_at};
use super::error::{ExpandError, ExpandResult};

/// The number of a fragment or of a set of attributes, where a file has none.
pub(super) const NONE: u32 = u32::MAX;
/// What the size of a directory counts for `.` and `..`, which its listing does not have.
pub(super) const DOTS: u32 = 3;

/// Kinds of inodes in their short form, which listings have too, and in their long one.
pub(super) mod kinds {
    pub(in crate::squashfs) const DIRECTORY: u16 = 1;
    pub(in crate::squashfs) const FILE: u16 = 2;
    pub(in crate::squashfs) const LINK: u16 = 3;
    pub(in crate::squashfs) const BLOCK_DEVICE: u16 = 4;
    pub(in crate::squashfs) const CHARACTER_DEVICE: u16 = 5;
    pub(in crate::squashfs) const PIPE: u16 = 6;
    pub(in crate::squashfs) const SOCKET: u16 = 7;
    /// How much greater the number of the long form is.
    pub(in crate::squashfs) const LONG: u16 = 7;

    pub(super) const LONG_DIRECTORY: u16 = DIRECTORY + LONG;
    pub(super) const LONG_FILE: u16 = FILE + LONG;
    pub(super) const LONG_LINK: u16 = LINK + LONG;
    pub(super) const LONG_BLOCK_DEVICE: u16 = BLOCK_DEVICE + LONG;
    pub(super) const LONG_CHARACTER_DEVICE: u16 = CHARACTER_DEVICE + LONG;
    pub(super) const LONG_PIPE: u16 = PIPE + LONG;
    pub(super) const LONG_SOCKET: u16 = SOCKET + LONG;
}

/// The addresses in an inode. Fields `at_…` are offsets in the table.
pub(super) enum Inode {
    File(FileInode),
    Directory(DirectoryInode),
    /// A link, a device, a pipe or a socket.
    Other,
}

pub(super) struct FileInode {
    pub(super) at_start: usize,
    /// True if the start has 64 bits.
    pub(super) wide: bool,
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) tail: Option<FileTail>,
    /// The lengths of its blocks, of 4 bytes each.
    pub(super) lengths: Range<usize>,
}

/// The end of a file that lies in a fragment.
pub(super) struct FileTail {
    pub(super) fragment: u32,
    pub(super) offset: u32,
}

pub(super) struct DirectoryInode {
    pub(super) at_start: usize,
    pub(super) start: u32,
    pub(super) offset: u16,
    /// Of its listing in the table of directories.
    pub(super) length: u32,
    /// Where the starts in its index stand.
    pub(super) at_index_starts: Vec<usize>,
}

/// The inode at `at`, and where the next one is.
pub(super) fn inode(table: &[u8], at: usize, block_size: u32) -> ExpandResult<(Inode, usize)> {
    let (u16_in, u32_in) =
        (|field: usize| u16_at(table, at + field), |field: usize| u32_at(table, at + field));
    match u16_in(0)? {
        kinds::DIRECTORY => {
            let directory = DirectoryInode {
                at_start: at + 16,
                start: u32_in(16)?,
                offset: u16_in(26)?,
                length: listing_length(u16_in(24)?.into())?,
                at_index_starts: Vec::new(),
            };
            Ok((Inode::Directory(directory), at + 32))
        }
        kinds::LONG_DIRECTORY => {
            let (at_index_starts, end) = directory_index(table, at + 40, u16_in(32)?)?;
            let directory = DirectoryInode {
                at_start: at + 24,
                start: u32_in(24)?,
                offset: u16_in(34)?,
                length: listing_length(u32_in(20)?)?,
                at_index_starts,
            };
            Ok((Inode::Directory(directory), end))
        }
        kinds::FILE => {
            let (start, size) = (u32_in(16)?.into(), u32_in(28)?.into());
            let tail = tail(u32_in(20)?, u32_in(24)?);
            let lengths = lengths(table, at + 32, size, block_size, tail.is_some())?;
            let end = lengths.end;
            Ok((Inode::File(FileInode { at_start: at + 16, wide: false, start, size, tail, lengths }), end))
        }
        kinds::LONG_FILE => {
            let (start, size) = (u64_at(table, at + 16)?, u64_at(table, at + 24)?);
            let tail = tail(u32_in(44)?, u32_in(48)?);
            let lengths = lengths(table, at + 56, size, block_size, tail.is_some())?;
            let end = lengths.end;
            Ok((Inode::File(FileInode { at_start: at + 16, wide: true, start, size, tail, lengths }), end))
        }
        kind @ (kinds::LINK | kinds::LONG_LINK) => {
            let target = usize::try_from(u32_in(20)?).unwrap_or(usize::MAX);
            let end = (at + 24).saturating_add(target);
            Ok((Inode::Other, end.saturating_add(if kind == kinds::LONG_LINK { 4 } else { 0 })))
        }
        kinds::BLOCK_DEVICE | kinds::CHARACTER_DEVICE | kinds::LONG_PIPE | kinds::LONG_SOCKET => {
            Ok((Inode::Other, at + 24))
        }
        kinds::PIPE | kinds::SOCKET => Ok((Inode::Other, at + 20)),
        kinds::LONG_BLOCK_DEVICE | kinds::LONG_CHARACTER_DEVICE => Ok((Inode::Other, at + 28)),
        _ => Err(ExpandError::Damaged("an inode has an unknown kind")),
    }
}

fn listing_length(size: u32) -> ExpandResult<u32> {
    size.checked_sub(DOTS).ok_or(ExpandError::Damaged("a directory is too short"))
}

/// Where in a directory's index, which begins at `at`, starts stand, and where the index ends.
fn directory_index(table: &[u8], mut at: usize, count: u16) -> ExpandResult<(Vec<usize>, usize)> {
    let mut starts = Vec::new();
    for _ in 0..count {
        starts.push(at + 4);
        let name = usize::try_from(u32_at(table, at + 8)?).unwrap_or(usize::MAX);
        // The length is stored as one less than it is.
        at = (at + 13).saturating_add(name);
        if at > table.len() {
            return Err(ExpandError::Damaged("a directory's index is longer than its table"));
        }
    }
    Ok((starts, at))
}

fn tail(fragment: u32, offset: u32) -> Option<FileTail> {
    (fragment != NONE).then_some(FileTail { fragment, offset })
}

fn lengths(table: &[u8], at: usize, size: u64, block_size: u32, tail: bool) -> ExpandResult<Range<usize>> {
    let block_size = u64::from(block_size);
    let count = if tail { size / block_size } else { size.div_ceil(block_size) };
    let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(4));
    let end = bytes.and_then(|bytes| at.checked_add(bytes)).filter(|end| *end <= table.len());
    Ok(at..end.ok_or(ExpandError::Damaged("a file has more blocks than its table can name"))?)
}
