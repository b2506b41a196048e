//! Applying patches.

use std::io::{self, Read, Write};

use base::digest::{Digest, Hasher};
use zstd::zstd_safe::DCtx;

use super::format::{DeltaError, ImageIdentity, PatchHeader, SegmentRecord, read_patch};
use crate::iso9660::{Offset, Source};

/// A patch that is read from its first byte to its last.
#[derive(Debug)]
pub struct Patch<R> {
    reader: R,
    header: PatchHeader,
}

impl<R: Read> Patch<R> {
    pub fn open(mut reader: R) -> Result<Self, DeltaError> {
        let header = PatchHeader::read(&mut reader)?;
        Ok(Self { reader, header })
    }

    /// The image that the patch is for.
    #[must_use]
    pub fn old(&self) -> ImageIdentity {
        self.header.old
    }

    /// The image that it makes. The caller must know from elsewhere that this is the right one.
    #[must_use]
    pub fn new_image(&self) -> ImageIdentity {
        self.header.new
    }

    /// Writes the new image to `out`. `old` begins with the old image and may be longer. Each segment is checked before it is
    /// written, and the whole image at the end.
    pub fn apply(mut self, old: &impl Source, out: &mut dyn Write) -> Result<(), DeltaError> {
        let found = old.length().map_err(|error| DeltaError::ReadImage(0, error))?;
        if found < self.header.old.length {
            return Err(DeltaError::OtherImage { needed: self.header.old.length, found });
        }
        let mut whole = Hasher::default();
        let mut segment = Vec::new();
        for number in 0..self.header.segments() {
            let record = SegmentRecord::read(&mut self.reader, &self.header, number)?;
            let mut frame = vec![0; record.frame as usize];
            read_patch(&mut self.reader, &mut frame)?;
            let part = read_part(old, record.part_start, record.part_length)?;
            segment.resize(self.header.length_of(number), 0);
            let unpacked = decompress(&part, &frame, &mut segment);
            if unpacked != Some(segment.len()) || Digest::of(&segment) != record.digest {
                return Err(DeltaError::WrongSegment(number));
            }
            whole.update(&segment);
            out.write_all(&segment).map_err(DeltaError::Write)?;
        }
        if self.reader.read(&mut [0]).map_err(DeltaError::ReadPatch)? > 0 {
            return Err(DeltaError::Damaged("something follows its last segment"));
        }
        let (needed, found) = (self.header.new.digest, whole.finish());
        match found != needed {
            true => Err(DeltaError::WrongImage { needed, found }),
            false => Ok(()),
        }
    }
}

/// Fills `segment`; returns how much of it was filled.
fn decompress(part: &[u8], frame: &[u8], segment: &mut [u8]) -> Option<usize> {
    let mut context = DCtx::create();
    context.ref_prefix(part).ok()?;
    context.decompress(segment, frame).ok()
}

/// The `length` bytes of an image at `at`.
pub(super) fn read_part(image: &impl Source, at: u64, length: u32) -> Result<Vec<u8>, DeltaError> {
    let mut bytes = vec![0; length as usize];
    let mut done = 0;
    while done < bytes.len() {
        let place = at + done as u64;
        match image.read_at(&mut bytes[done..], Offset(place)) {
            Ok(0) => return Err(DeltaError::ReadImage(place, io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(DeltaError::ReadImage(place, error)),
        }
    }
    Ok(bytes)
}
