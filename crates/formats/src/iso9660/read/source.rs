//! Bounded reads from an image, and a part of a source as a source of its own.

use std::io;

use super::error::Error;
use crate::iso9660::address::{Offset, Source};

/// The bytes of another source from `start` on, such as a partition of a disk.
#[derive(Debug)]
pub struct OffsetSource<S> {
    pub source: S,
    pub start: Offset,
}

impl<S: Source> Source for OffsetSource<S> {
    fn read_at(&self, buffer: &mut [u8], offset: Offset) -> io::Result<usize> {
        self.source.read_at(buffer, self.start.plus(offset.0))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.source.length()?.saturating_sub(self.start.0))
    }
}

/// Reads exactly `length` bytes at `offset`. The memory is taken only after it is known that the image is
/// that long, so a wild length costs nothing.
pub(super) fn read_exactly(
    source: &impl Source,
    image_length: u64,
    offset: Offset,
    length: u32,
) -> Result<Vec<u8>, Error> {
    let end = offset.plus(u64::from(length));
    if end.0 > image_length {
        return Err(Error::Truncated { needed: end.0, length: image_length });
    }
    let mut bytes = vec![0; length as usize];
    let mut done = 0;
    while done < bytes.len() {
        let at = offset.plus(done as u64);
        match source.read_at(&mut bytes[done..], at) {
            Ok(0) => return Err(Error::Truncated { needed: end.0, length: at.0 }),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::Io { offset: at, source }),
        }
    }
    Ok(bytes)
}
