//! The bytes of a disk or partition, as every probe reads them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::bytes::Bytes;
use super::signature::Signature;
use base::size::ByteSize;

/// The source of bytes: a device node, or a file in its place.
pub trait ReadAt {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

pub(crate) struct Window {
    file: File,
    start: u64,
}

impl Window {
    pub(crate) fn whole(file: File) -> Self {
        Self { file, start: 0 }
    }

    pub(crate) fn at(file: File, start: ByteSize) -> Self {
        Self { file, start: start.get() }
    }
}

impl ReadAt for Window {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(&self.file, buffer, self.start.saturating_add(offset))
    }
}

pub(crate) struct ProbedVolume<'a> {
    pub(super) source: &'a dyn ReadAt,
    pub(super) size: u64,
    pub(super) sector: u64,
    /// The first bytes, where most signatures are: one read instead of many, which matters on disks that seek.
    head: Vec<u8>,
}

/// In bytes, enough for the signature of Btrfs, which is the last one at the start.
pub(super) const HEAD_BYTES: u64 = 68 << 10;

impl<'a> ProbedVolume<'a> {
    /// # Errors
    /// The start cannot be read.
    pub(crate) fn new(source: &'a dyn ReadAt, size: ByteSize, sector: u32) -> io::Result<Self> {
        let mut head = vec![0; usize::try_from(size.get().min(HEAD_BYTES)).unwrap_or(0)];
        source.read_exact_at(&mut head, 0)?;
        Ok(Self { source, size: size.get(), sector: u64::from(sector.max(512)), head })
    }

    /// The bytes at `offset`; fewer at the end of the volume.
    pub(super) fn at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let length = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(length).min(length);
        if length == 0 {
            return Ok(Bytes::new(Vec::new()));
        }
        if let Ok(start) = usize::try_from(offset)
            && let Some(known) = start.checked_add(length).and_then(|end| self.head.get(start..end))
        {
            return Ok(Bytes::new(known.to_vec()));
        }
        let mut bytes = vec![0; length];
        self.source.read_exact_at(&mut bytes, offset)?;
        Ok(Bytes::new(bytes))
    }

    /// The bytes that begin `distance` before the end; empty if the volume is shorter.
    pub(super) fn before_end(&self, distance: u64, length: usize) -> io::Result<(u64, Bytes)> {
        match self.size.checked_sub(distance) {
            Some(offset) => Ok((offset, self.at(offset, length)?)),
            None => Ok((0, Bytes::new(Vec::new()))),
        }
    }
}

pub(super) type ProbeResult = io::Result<Option<Signature>>;
