//! The disk: a sparse file.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use anyhow::Result;
use nix::fcntl::{FallocateFlags, fallocate};

use crate::execute::disk::device::{BlockDevice, CHUNK_BYTES};
use crate::plan::Target;
use base::failure::{Class, Classify};

/// A disk whose bytes are a file; runs of zeros take no room.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    target: Target,
}

impl DiskFile {
    /// Makes `file`, which is empty, the disk of the plan.
    pub fn new(file: File, target: &Target) -> Result<Self> {
        file.set_len(target.size.get())
            .class(Class::DiskIo, || format!("making a file of {}", target.description))?;
        Ok(Self { file, target: target.clone() })
    }

    /// Waits until the bytes are on the disk below.
    pub fn store(&self) -> Result<()> {
        self.file.sync_all().class(Class::DiskIo, || format!("flushing {}", self.target.description))
    }
}

impl BlockDevice for DiskFile {
    fn target(&self) -> &Target {
        &self.target
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.target.size.get()) {
            return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
        }
        if bytes.iter().any(|byte| *byte != 0) {
            return self.file.write_all_at(bytes, offset);
        }
        let (start, length) = (i64::try_from(offset), i64::try_from(bytes.len()));
        let (Ok(start), Ok(length)) = (start, length) else { return self.file.write_all_at(bytes, offset) };
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        // Some file systems have no holes.
        fallocate(self.file.as_fd(), hole, start, length).or_else(|_| self.file.write_all_at(bytes, offset))
    }

    fn forget(&self, offset: u64, length: u64) -> io::Result<()> {
        let zeros = vec![0; CHUNK_BYTES];
        let end = offset + length;
        (offset..end).step_by(CHUNK_BYTES).try_for_each(|at| {
            let left = usize::try_from(end - at).unwrap_or(CHUNK_BYTES);
            self.write_at(at, &zeros[..left.min(CHUNK_BYTES)])
        })
    }

    /// The order of writes matters to nobody: a file that is not finished is removed. [`DiskFile::store`] flushes it once.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
