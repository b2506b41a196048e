//! A disk in memory on top of a real one, which is only read. For rehearsing.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard};

use super::device::{BlockDevice, Layer};
use crate::plan::SectorSize;
use base::parallel::locked;

/// A disk on top of another one; its writes are kept in memory and dropped with it.
pub(crate) struct Overlay<'a> {
    inner: &'a dyn BlockDevice,
    /// Whole sectors by their offsets.
    written: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl<'a> Overlay<'a> {
    /// Starts with the content of `inner`.
    pub(crate) fn new(inner: &'a dyn BlockDevice) -> Self {
        Self { inner, written: Mutex::default() }
    }

    fn written(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<u8>>> {
        locked(&self.written)
    }

    /// The length of a sector as an index.
    fn step(&self) -> usize {
        match self.inner.sector() {
            SectorSize::B512 => 512,
            SectorSize::B4096 => 4096,
        }
    }
}

impl Layer for Overlay<'_> {
    fn below(&self) -> &dyn BlockDevice {
        self.inner
    }

    fn read_through(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buffer)?;
        let written = self.written();
        for (place, piece) in (offset..).step_by(self.step()).zip(buffer.chunks_mut(self.step())) {
            if let Some(bytes) = written.get(&place) {
                piece.copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    fn write_through(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.size().get()) {
            return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
        }
        let pieces = (offset..).step_by(self.step()).zip(bytes.chunks(self.step()));
        self.written().extend(pieces.map(|(place, piece)| (place, piece.to_vec())));
        Ok(())
    }

    fn flush_through(&self) -> io::Result<()> {
        Ok(())
    }
}
