//! The bytes of a patch: a header, then for each segment a record and a zstd frame. Numbers are little-endian.
//!
//! | Header | Bytes | Record | Bytes |
//! |---|---:|---|---:|
//! | `NQDELTA1` | 8 | start of the part of the old image | 8 |
//! | length of a segment | 4 | its length | 4 |
//! | zero | 4 | length of the frame | 4 |
//! | length and SHA-256 of the old image | 40 | SHA-256 of the segment | 32 |
//! | length and SHA-256 of the new image | 40 | | |

use std::io::{self, Read, Write};

use base::digest::Digest;

/// With the version of the format.
const MAGIC: &[u8; 8] = b"NQDELTA1";
const HEADER_BYTES: usize = 96;
const RECORD_BYTES: usize = 48;

/// The longest segment that is accepted. Together with the part of the old image and the frame this is what applying a patch
/// keeps in memory: at most 32 + 128 + 33 MiB.
const MOST_SEGMENT: u32 = 32 << 20;
/// The longest part of the old image that is accepted.
const MOST_PART: u32 = 128 << 20;

/// Why a patch cannot be made or applied.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    #[error("not a patch between images")]
    NotPatch,
    #[error("the patch is damaged: {0}")]
    Damaged(&'static str),
    /// The input has another length than the image that the patch was made from.
    #[error("the patch is for an image of {needed} bytes, and there are {found}")]
    OtherImage { needed: u64, found: u64 },
    /// The image or the patch is wrong. Nothing of the segment is written.
    #[error(
        "segment {0} of the patch has the wrong digest: the patch is for another image, or one of the two is damaged"
    )]
    WrongSegment(u32),
    /// Every segment is right, but the whole is not the image that the patch names.
    #[error("the patched image has the digest {found} instead of {needed}")]
    WrongImage { needed: Digest, found: Digest },
    #[error("reading the image at byte {0}")]
    ReadImage(u64, #[source] io::Error),
    #[error("reading the patch")]
    ReadPatch(#[source] io::Error),
    #[error("writing")]
    Write(#[source] io::Error),
    #[error("compressing a segment: {0}")]
    Compress(&'static str),
}

/// An image, by its length and digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageIdentity {
    /// In bytes.
    pub length: u64,
    pub digest: Digest,
}

#[derive(Clone, Debug)]
pub(super) struct PatchHeader {
    pub(super) segment: u32,
    pub(super) old: ImageIdentity,
    pub(super) new: ImageIdentity,
}

/// The record before the frame of a segment.
#[derive(Clone, Debug)]
pub(super) struct SegmentRecord {
    pub(super) part_start: u64,
    pub(super) part_length: u32,
    pub(super) frame: u32,
    pub(super) digest: Digest,
}

impl PatchHeader {
    pub(super) fn read(patch: &mut impl Read) -> Result<Self, DeltaError> {
        let mut bytes = [0; HEADER_BYTES];
        read_patch(patch, &mut bytes)?;
        let mut fields = FieldReader(&bytes);
        if fields.take::<8>() != *MAGIC {
            return Err(DeltaError::NotPatch);
        }
        let segment = u32::from_le_bytes(fields.take());
        if segment == 0 || segment > MOST_SEGMENT || fields.take() != [0; 4] {
            return Err(DeltaError::Damaged("its header is not valid"));
        }
        let mut identity = || ImageIdentity {
            length: u64::from_le_bytes(fields.take()),
            digest: Digest::from_bytes(fields.take()),
        };
        let header = Self { segment, old: identity(), new: identity() };
        if header.new.length.div_ceil(segment.into()) > u32::MAX.into() {
            return Err(DeltaError::Damaged("it has too many segments"));
        }
        Ok(header)
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(MAGIC)?;
        out.write_all(&self.segment.to_le_bytes())?;
        out.write_all(&[0; 4])?;
        for image in [&self.old, &self.new] {
            out.write_all(&image.length.to_le_bytes())?;
            out.write_all(image.digest.as_bytes())?;
        }
        Ok(())
    }

    /// The number of segments; [`Self::read`] has checked that it fits.
    pub(super) fn segments(&self) -> u32 {
        u32::try_from(self.new.length.div_ceil(self.segment.into())).unwrap_or(u32::MAX)
    }

    /// The length of a segment, less for the last.
    pub(super) fn length_of(&self, number: u32) -> usize {
        let start = u64::from(number) * u64::from(self.segment);
        let left = self.new.length.saturating_sub(start);
        usize::try_from(left).unwrap_or(usize::MAX).min(self.segment as usize)
    }
}

impl SegmentRecord {
    pub(super) fn read(patch: &mut impl Read, header: &PatchHeader, number: u32) -> Result<Self, DeltaError> {
        let mut bytes = [0; RECORD_BYTES];
        read_patch(patch, &mut bytes)?;
        let mut fields = FieldReader(&bytes);
        let record = Self {
            part_start: u64::from_le_bytes(fields.take()),
            part_length: u32::from_le_bytes(fields.take()),
            frame: u32::from_le_bytes(fields.take()),
            digest: Digest::from_bytes(fields.take()),
        };
        let end = record.part_start.checked_add(record.part_length.into());
        if record.part_length > MOST_PART || end.is_none_or(|end| end > header.old.length) {
            return Err(DeltaError::Damaged("a segment refers to bytes beyond the old image"));
        }
        if record.frame as usize > zstd::zstd_safe::compress_bound(header.length_of(number)) {
            return Err(DeltaError::Damaged("a compressed segment is longer than its content"));
        }
        Ok(record)
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.part_start.to_le_bytes())?;
        out.write_all(&self.part_length.to_le_bytes())?;
        out.write_all(&self.frame.to_le_bytes())?;
        out.write_all(self.digest.as_bytes())
    }
}

/// Reads fields of fixed lengths in order.
struct FieldReader<'b>(&'b [u8]);

impl FieldReader<'_> {
    /// The next `N` bytes; zeros beyond the end, which no caller reads.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *field
    }
}

/// Fills `bytes`; a patch that ends before is damaged.
pub(super) fn read_patch(patch: &mut impl Read, bytes: &mut [u8]) -> Result<(), DeltaError> {
    patch.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => DeltaError::Damaged("it is cut off"),
        _ => DeltaError::ReadPatch(error),
    })
}
