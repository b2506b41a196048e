//! Disks as the checker reads them: bytes, and changes on top of them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;

use sha2::{Digest, Sha256};

use crate::verdict::Hash;

/// Readable bytes from 0 to [`Bytes::length`].
pub trait Bytes {
    /// In bytes.
    fn length(&self) -> u64;
    /// Fills `buffer` from `offset`. Reading beyond the end is an error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// Bytes that can also be written.
pub trait Store: Bytes {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

impl Bytes for Vec<u8> {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let here = self.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(here.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Bytes for fs::File {
    fn length(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl Store for fs::File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ZeroDisk(
    /// In bytes.
    pub u64,
);

impl Bytes for ZeroDisk {
    fn length(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(0);
        Ok(())
    }
}

const PAGE: usize = 4096;

/// Changes on top of a disk, which itself stays unchanged. Only changed pages take memory.
#[allow(missing_debug_implementations)]
pub struct Overlay<'a> {
    below: &'a dyn Bytes,
    /// Of the disk below, in bytes: a file would be asked at every page.
    length: u64,
    pages: HashMap<u64, Box<[u8; PAGE]>>,
}

impl<'a> Overlay<'a> {
    /// No changes yet.
    #[must_use]
    pub fn new(below: &'a dyn Bytes) -> Self {
        Self { below, length: below.length(), pages: HashMap::new() }
    }

    /// True if all bytes are the same as without the changes.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        for (index, page) in &self.pages {
            if **page != *self.page_below(*index)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the disk below has in a page; zeros beyond its end.
    fn page_below(&self, index: u64) -> io::Result<Box<[u8; PAGE]>> {
        let mut page = Box::new([0; PAGE]);
        let offset = index * PAGE as u64;
        let length = (self.length - offset).min(PAGE as u64);
        self.below.read_at(offset, &mut page[..usize::try_from(length).map_err(io::Error::other)?])?;
        Ok(page)
    }
}

/// Calls `visit` for each page that `length` bytes at `offset` touch, with its number, the range in the page, and the
/// range in the bytes.
fn each_page(
    offset: u64,
    length: usize,
    mut visit: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        let within = usize::try_from(at % PAGE as u64).map_err(io::Error::other)?;
        let count = (PAGE - within).min(length - done);
        visit(at / PAGE as u64, within..within + count, done..done + count)?;
        done += count;
    }
    Ok(())
}

impl Bytes for Overlay<'_> {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buffer)?;
        each_page(offset, buffer.len(), |index, within, place| {
            if let Some(page) = self.pages.get(&index) {
                buffer[place].copy_from_slice(&page[within]);
            }
            Ok(())
        })
    }
}

impl Store for Overlay<'_> {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset + bytes.len() as u64 > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        each_page(offset, bytes.len(), |index, within, place| {
            let mut page = match self.pages.remove(&index) {
                Some(page) => page,
                None if within.len() == PAGE => Box::new([0; PAGE]),
                None => self.page_below(index)?,
            };
            page[within].copy_from_slice(&bytes[place]);
            self.pages.insert(index, page);
            Ok(())
        })
    }
}

/// The SHA-256 of `length` bytes at `offset`.
pub(crate) fn hash(disk: &dyn Bytes, offset: u64, length: u64) -> io::Result<Hash> {
    let mut hasher = Sha256::new();
    hash_into(&mut hasher, disk, offset, length)?;
    Ok(hasher.finalize().into())
}

pub(crate) fn hash_into(
    hasher: &mut Sha256,
    disk: &dyn Bytes,
    mut offset: u64,
    length: u64,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let end = offset + length;
    while offset < end {
        let count = usize::try_from((end - offset).min(1 << 20)).map_err(io::Error::other)?;
        disk.read_at(offset, &mut buffer[..count])?;
        hasher.update(&buffer[..count]);
        offset += count as u64;
    }
    Ok(())
}

/// `N` bytes at `offset`; none if they cannot be read.
pub(crate) fn array<const N: usize>(disk: &dyn Bytes, offset: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    disk.read_at(offset, &mut bytes).ok()?;
    Some(bytes)
}

/// `length` bytes at `offset`; none if they cannot be read.
pub(crate) fn vector(disk: &dyn Bytes, offset: u64, length: u64) -> Option<Vec<u8>> {
    // The length comes from the disk under test.
    let mut bytes = vec![0; usize::try_from(length).ok().filter(|length| *length <= 64 << 20)?];
    disk.read_at(offset, &mut bytes).ok()?;
    Some(bytes)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
