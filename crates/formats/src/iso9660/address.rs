//! Addresses in an ISO, and the source of its bytes.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Bytes in a logical block. ISO 9660 allows others; no medium that boots has them.
pub const BLOCK_SIZE: u32 = 2048;

/// Address of a logical block, counted from the start of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block(pub u32);

impl Block {
    #[must_use]
    pub fn offset(self) -> Offset {
        Offset(u64::from(self.0) * u64::from(BLOCK_SIZE))
    }
}

/// Position of a byte, counted from the start of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A run of consecutive bytes that begins with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub start: Block,
    /// Length in bytes.
    pub length: u32,
}

/// Bytes with random access, for concurrent readers.
pub trait Source: Send + Sync {
    /// Reads some bytes at `offset`; 0 at the end. As [`FileExt::read_at`].
    fn read_at(&self, buffer: &mut [u8], offset: Offset) -> io::Result<usize>;

    /// In bytes.
    fn length(&self) -> io::Result<u64>;
}

impl Source for File {
    fn read_at(&self, buffer: &mut [u8], offset: Offset) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset.0)
    }

    fn length(&self) -> io::Result<u64> {
        // A block device has a length of 0 in its metadata; its end can still be sought.
        let mut file = self;
        file.seek(SeekFrom::End(0))
    }
}

impl Source for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], offset: Offset) -> io::Result<usize> {
        let start = usize::try_from(offset.0).unwrap_or(usize::MAX).min(self.len());
        let count = buffer.len().min(self.len() - start);
        buffer[..count].copy_from_slice(&self[start..start + count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}
