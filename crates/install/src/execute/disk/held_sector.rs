//! The commit: one sector of the disk that stays in memory until everything else is on the disk and checked.

use std::io;
use std::sync::{Mutex, MutexGuard};

use anyhow::{Context, Result};

use super::device::{self, AlignedBuffer, BlockDevice, Layer};
use base::failure::{Class, Failure};
use base::parallel::locked;

/// A disk of which one sector is held back: writes to it stay in memory and put zeros on the disk, reads return what was written.
/// [`HeldSector::commit`] writes it.
pub(crate) struct HeldSector<'a> {
    inner: &'a dyn BlockDevice,
    at: u64,
    held: Mutex<Option<Vec<u8>>>,
}

impl<'a> HeldSector<'a> {
    /// Holds back the sector at byte `at` of `inner`.
    pub(crate) fn new(inner: &'a dyn BlockDevice, at: u64) -> Self {
        Self { inner, at, held: Mutex::new(None) }
    }

    /// The same sector held back on another disk that has, or is to have, the same content.
    pub(crate) fn on<'b>(&self, inner: &'b dyn BlockDevice) -> HeldSector<'b> {
        HeldSector { inner, at: self.at, held: Mutex::new(self.lock().clone()) }
    }

    /// Writes the sector, flushes, and reads it back. After an error it is erased again.
    pub(crate) fn commit(&self) -> Result<()> {
        let held = self.lock().take();
        let Some(held) = held else {
            return Err(Failure::new(Class::Unexpected, "there is no boot sector to write").into());
        };
        let committed = device::write_checked(self.inner, self.at, &held, "the boot sector");
        // A sector of unknown content must not boot.
        if committed.is_err()
            && let Err(error) = self.take_back(held.len())
        {
            let disk = self.inner.describe();
            return committed.with_context(|| format!("{disk} may still boot ({error:#})"));
        }
        committed
    }

    fn take_back(&self, length: usize) -> Result<()> {
        device::write(self.inner, self.at, &AlignedBuffer::new(length))?;
        device::barrier(self.inner)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        locked(&self.held)
    }

    /// The part of a transfer of `length` bytes at `offset` that is the held sector.
    fn within(&self, offset: u64, length: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(self.at.checked_sub(offset)?).ok()?;
        let end = start + usize::try_from(self.inner.sector().bytes()).ok()?;
        (end <= length).then_some(start..end)
    }
}

impl Layer for HeldSector<'_> {
    fn below(&self) -> &dyn BlockDevice {
        self.inner
    }

    fn read_through(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)?;
        if let (Some(range), Some(held)) = (self.within(offset, buffer.len()), &*self.lock()) {
            buffer[range].copy_from_slice(held);
        }
        Ok(())
    }

    fn write_through(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(range) = self.within(offset, bytes.len()) else {
            return self.inner.write_at(offset, bytes);
        };
        *self.lock() = Some(bytes[range.clone()].to_vec());
        let mut without = AlignedBuffer::new(bytes.len());
        without.copy_from_slice(bytes);
        without[range].fill(0);
        self.inner.write_at(offset, &without)
    }
}
