//! The seam through which every byte goes to and comes from the target disk, and the one place that words the errors of disks.

use std::io;

use anyhow::Result;
use nix::libc;

use crate::plan::{PartitionName, SectorSize, Target};
use base::failure::{Class, Failure, class_of};
use base::size::ByteSize;

pub(crate) const CHUNK_BYTES: usize = 4 << 20;

/// Memory for direct I/O begins at a multiple of this; no disk needs more than a page.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A disk. Offsets and lengths are multiples of its sector size; reads and writes are whole or an error.
pub trait BlockDevice: Send + Sync {
    fn target(&self) -> &Target;
    /// The disk as people know it: node, size, model and serial number.
    fn describe(&self) -> String {
        self.target().description.clone()
    }
    fn size(&self) -> ByteSize {
        self.target().size
    }
    fn sector(&self) -> SectorSize {
        self.target().sector
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// A barrier: what was written before it survives a power cut, before anything written after it.
    fn flush(&self) -> io::Result<()>;
    /// Bytes that are not read again before they are written. A disk in a file frees their space.
    fn forget(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A disk on top of another one: it changes some of the reads and writes, and passes on everything else.
pub(crate) trait Layer: Send + Sync {
    fn below(&self) -> &dyn BlockDevice;
    fn read_through(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.below().read_at(offset, buffer)
    }
    fn write_through(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn flush_through(&self) -> io::Result<()> {
        self.below().flush()
    }
}

impl<L: Layer> BlockDevice for L {
    fn target(&self) -> &Target {
        self.below().target()
    }

    fn describe(&self) -> String {
        self.below().describe()
    }

    fn size(&self) -> ByteSize {
        self.below().size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_through(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_through(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.flush_through()
    }

    fn forget(&self, offset: u64, length: u64) -> io::Result<()> {
        self.below().forget(offset, length)
    }
}

/// Writes; an error names the place.
pub(crate) fn write(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) -> Result<()> {
    let written = device.write_at(offset, bytes);
    written.map_err(|error| cannot_write(device, offset, bytes.len(), error).into())
}

/// Writes, followed by a barrier, and reads it back. `what` names the bytes in the error.
pub(crate) fn write_checked(device: &dyn BlockDevice, offset: u64, bytes: &[u8], what: &str) -> Result<()> {
    write(device, offset, bytes)?;
    barrier(device)?;
    let mut found = AlignedBuffer::new(bytes.len());
    read(device, offset, &mut found)?;
    match first_difference(&found, bytes) {
        None => Ok(()),
        Some(place) => Err(differs(what, offset + place, device).into()),
    }
}

pub(crate) fn cannot_write(
    device: &dyn BlockDevice,
    offset: u64,
    length: usize,
    error: io::Error,
) -> Failure {
    let what = format!("writing {} at byte {offset}", ByteSize::bytes(length as u64));
    trouble(&what, device, error)
}

/// Reads; an error names the place.
pub(crate) fn read(device: &dyn BlockDevice, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let length = ByteSize::bytes(buffer.len() as u64);
    let what = || format!("reading {length} at byte {offset}");
    device.read_at(offset, buffer).map_err(|error| trouble(&what(), device, error).into())
}

pub(crate) fn barrier(device: &dyn BlockDevice) -> Result<()> {
    device.flush().map_err(|error| trouble("flushing the cache", device, error).into())
}

/// The failure of the action `what`, with the disk, the kernel's error, and a hint.
fn trouble(what: &str, device: &dyn BlockDevice, error: io::Error) -> Failure {
    let advice = advice(&error);
    Failure::new(Class::DiskIo, format!("{what} of {}", device.describe())).because(error).hint(advice)
}

/// The failure of a disk that returns other bytes than were written: `what` differs from byte `offset` of the disk on.
pub(crate) fn differs(what: &str, offset: u64, device: &dyn BlockDevice) -> Failure {
    let disk = device.describe();
    Failure::new(Class::DiskIo, format!("{what} at byte {offset} of {disk} does not read back as written"))
        .hint(UNRELIABLE)
}

/// The hint for a disk that returns wrong data without an error.
pub(crate) const UNRELIABLE: &str = "The disk, its cable or its controller loses data without \
    reporting an error. Try another port, then another disk.";

/// The first byte in which `found` differs from `expected`, which is as long.
pub(crate) fn first_difference(found: &[u8], expected: &[u8]) -> Option<u64> {
    found.iter().zip(expected).position(|(found, expected)| found != expected).map(|place| place as u64)
}

/// The hint for an error of the kernel.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM | libc::ESHUTDOWN) => {
            "The disk disappeared. Check its cable and its power, then start the install again."
        }
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => {
            "The disk refuses writes. Remove the write protection of the disk or its controller."
        }
        Some(libc::ENOSPC) => "The disk is smaller than the size that it reports. Replace it.",
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "The disk is smaller than the size that it reports. Replace it."
        }
        _ => WORN,
    }
}

/// The hint for a disk that reports errors.
pub(crate) const WORN: &str = "Check the disk's cable, try another port, and read the disk's \
    error log (SMART). Replace the disk if the errors continue.";

/// An error of work on the file system of a partition; if its disk is the cause, with the disk and a hint.
pub(crate) fn in_filesystem(error: anyhow::Error, name: PartitionName, disk: &str) -> anyhow::Error {
    if class_of(&error) != Class::DiskIo {
        return error;
    }
    let from_kernel = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    // A full file system says nothing about its disk, and the report has its own hint for it.
    let advice = match from_kernel.and_then(io::Error::raw_os_error) {
        Some(libc::ENOSPC | libc::EDQUOT) => None,
        _ => from_kernel.map(advice),
    };
    let failure = Failure::new(Class::DiskIo, format!("using the file system {} on {disk}", name.as_str()));
    let failure = failure.because(error.reallocate_into_boxed_dyn_error_without_backtrace());
    match advice {
        Some(advice) => failure.hint(advice).into(),
        None => failure.into(),
    }
}

#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    pub(crate) fn new(length: usize) -> Self {
        let memory = vec![0; length + PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self { memory, start, length }
    }

    pub(crate) fn suits(bytes: &[u8]) -> bool {
        bytes.as_ptr().align_offset(PAGE_BYTES) == 0
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_memory_is_aligned_wherever_the_allocator_puts_it() {
        let buffers: Vec<_> = (1..50).map(|n| AlignedBuffer::new(n * 513)).collect();
        assert!(buffers.iter().all(|buffer| AlignedBuffer::suits(buffer)));
        assert_eq!(buffers[3].len(), 4 * 513);
    }
}
