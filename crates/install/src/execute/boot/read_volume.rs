//! Files of the FAT volumes of a disk, which is only read; and where on the disk they lie.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};
use transfer::range::ByteSpan;

/// No file that is read here is longer.
const FILE_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy, Debug)]
pub(crate) struct FatReader<'a> {
    disk: &'a File,
    start: u64,
    length: u64,
}

impl<'a> FatReader<'a> {
    pub(crate) fn new(disk: &'a File, start: u64, length: u64) -> Self {
        Self { disk, start, length }
    }

    pub(crate) fn file(&self, path: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(path, |piece, _| bytes.extend_from_slice(piece))?;
        Ok(bytes)
    }

    /// The content of a file that is no longer than a cluster, and where it begins on the disk, in bytes.
    pub(crate) fn placed(&self, path: &str) -> Result<(Vec<u8>, u64)> {
        let (mut bytes, mut start) = (Vec::new(), 0);
        self.read(path, |piece, place| {
            bytes.extend_from_slice(piece);
            start = place;
        })?;
        Ok((bytes, start))
    }

    /// Where on the disk the content is, in its order.
    pub(crate) fn spans(&self, path: &str) -> Result<Vec<ByteSpan>> {
        let mut spans: Vec<ByteSpan> = Vec::new();
        self.read(path, |piece, start| {
            let end = start + piece.len() as u64;
            match spans.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => spans.push(ByteSpan { start, end }),
            }
        })?;
        Ok(spans)
    }

    /// Gives `take` the content, piece by piece, and where on the disk each piece begins.
    fn read(&self, path: &str, mut take: impl FnMut(&[u8], u64)) -> Result<()> {
        let last = Cell::new(0);
        let part = DiskPart { volume: *self, position: 0, last: &last };
        let volume =
            fatfs::FileSystem::new(part, fatfs::FsOptions::new()).context("opening a FAT file system")?;
        let opened = volume.root_dir().open_file(path);
        let read = opened.and_then(|mut file| {
            let (mut buffer, mut length) = (vec![0; 1 << 20], 0);
            loop {
                let count = file.read(&mut buffer)?;
                if count == 0 {
                    return Ok(());
                }
                // The last read of the disk was that of these bytes; those of the file table are before it.
                take(&buffer[..count], last.get());
                length += count as u64;
                if length > FILE_BYTES_MAX {
                    return Err(io::Error::other("it is too long"));
                }
            }
        });
        read.with_context(|| format!("reading {path}"))
    }
}

/// A read-only stream of a volume, which remembers where on the disk the last read began.
struct DiskPart<'a> {
    volume: FatReader<'a>,
    position: u64,
    last: &'a Cell<u64>,
}

impl Read for DiskPart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let FatReader { disk, start, length } = self.volume;
        let left = length.saturating_sub(self.position);
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = disk.read_at(&mut buffer[..wanted], start + self.position)?;
        self.last.set(start + self.position);
        self.position += count as u64;
        Ok(count)
    }
}

impl Write for DiskPart<'_> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for DiskPart<'_> {
    fn seek(&mut self, target: SeekFrom) -> io::Result<u64> {
        self.position = formats::fat::seek_to(target, self.position, self.volume.length)?;
        Ok(self.position)
    }
}
