//! The seam through which every byte goes to and comes from the target disk.

use std::io;

use anyhow::Result;

use crate::failure::{Class, Classify};
use crate::plan::SectorSize;
use crate::size::ByteSize;

/// How much is written or read at once.
pub(super) const CHUNK: usize = 4 << 20;

/// Memory for direct I/O begins at a multiple of this; no disk asks for more than a page.
const PAGE: usize = 4096;

/// A disk. Offsets and lengths are multiples of its sector size; reads and writes are whole or an error.
pub trait BlockDevice: Send + Sync {
    /// Its length.
    fn size(&self) -> ByteSize;
    /// Its unit of addressing.
    fn sector(&self) -> SectorSize;
    /// Fills `buffer` from `offset`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// A barrier: what was written before it lasts through a power cut, before anything written after it.
    fn flush(&self) -> io::Result<()>;
}

/// Writes, and says where if that goes wrong.
pub(super) fn write(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) -> Result<()> {
    let what = || format!("writing {} at byte {offset} of the disk", ByteSize::bytes(bytes.len() as u64));
    device.write_at(offset, bytes).class(Class::DiskIo, what)
}

/// Reads, and says where if that goes wrong.
pub(super) fn read(device: &dyn BlockDevice, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let length = ByteSize::bytes(buffer.len() as u64);
    let what = || format!("reading {length} at byte {offset} of the disk");
    device.read_at(offset, buffer).class(Class::DiskIo, what)
}

/// A barrier, with the failure that belongs to it.
pub(super) fn barrier(device: &dyn BlockDevice) -> Result<()> {
    device.flush().class(Class::DiskIo, || "flushing the disk's cache".into())
}

/// Memory that direct I/O can use.
#[derive(Debug)]
pub(super) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// `length` zero bytes.
    pub(super) fn new(length: usize) -> Self {
        let memory = vec![0; length + PAGE];
        let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
        Self { memory, start, length }
    }

    /// Whether `bytes` lie where direct I/O needs them.
    pub(super) fn suits(bytes: &[u8]) -> bool {
        bytes.as_ptr().align_offset(PAGE) == 0
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
