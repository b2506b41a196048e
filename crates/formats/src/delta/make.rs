//! Making patches.

use std::io::Write;

use base::digest::{Digest, Hasher};
use base::parallel;
use zstd::zstd_safe::{CCtx, CParameter, compress_bound, get_error_name};

use super::apply::read_part;
use super::format::{DeltaError, ImageIdentity, PatchHeader, SegmentRecord};
use super::samples::{SampleIndex, Sampler};
use crate::iso9660::Source;

/// Of zstd. On two OS images with different kernels level 19 took seven times as long, and a third more bytes.
const LEVEL: i32 = 12;
/// On two OS images with different kernels, segments of 64 MiB with twice the margin gave 4 % more bytes.
const SIZES: SegmentSizes = SegmentSizes { segment: 32 << 20, margin: 64 << 20 };
/// The size of one read while an image is only scanned.
const PIECE: u32 = 4 << 20;

/// How images are cut up, in bytes.
#[derive(Clone, Copy)]
pub(super) struct SegmentSizes {
    /// Of the new image, that is made at once.
    pub(super) segment: u32,
    /// How far beyond a segment's own length the part of the old image reaches, on both sides together.
    pub(super) margin: u64,
}

/// Writes a patch from `old` to `new` to `out`. Each of `threads` takes about 200 MiB of memory.
pub fn make(
    old: &impl Source,
    new: &impl Source,
    threads: usize,
    out: &mut dyn Write,
) -> Result<(), DeltaError> {
    make_in(SIZES, old, new, threads, out)
}

pub(super) fn make_in(
    sizes: SegmentSizes,
    old: &impl Source,
    new: &impl Source,
    threads: usize,
    out: &mut dyn Write,
) -> Result<(), DeltaError> {
    let mut index = SampleIndex::default();
    let mut sampler = Sampler::default();
    let old_identity = identity(old, |at, bytes| {
        sampler.feed(bytes, |sample, place| index.add(sample, at + place as u64));
    })?;
    let header = PatchHeader { segment: sizes.segment, old: old_identity, new: identity(new, |_, _| {})? };
    header.write(out).map_err(DeltaError::Write)?;
    let numbers: Vec<u32> = (0..header.segments()).collect();
    for batch in numbers.chunks(threads.max(1)) {
        let made = parallel::map(batch, threads, |number| {
            segment(old, new, &header, &index, *number, sizes.margin)
        })?;
        for (record, frame) in &made {
            record.write(out).and_then(|()| out.write_all(frame)).map_err(DeltaError::Write)?;
        }
    }
    Ok(())
}

/// Reads an image from end to end; `look` sees each piece and its place.
fn identity(image: &impl Source, mut look: impl FnMut(u64, &[u8])) -> Result<ImageIdentity, DeltaError> {
    let length = image.length().map_err(|error| DeltaError::ReadImage(0, error))?;
    let (mut hasher, mut at) = (Hasher::default(), 0);
    while at < length {
        let wanted = u32::try_from(length - at).map_or(PIECE, |left| left.min(PIECE));
        let piece = read_part(image, at, wanted)?;
        hasher.update(&piece);
        look(at, &piece);
        at += u64::from(wanted);
    }
    Ok(ImageIdentity { length, digest: hasher.finish() })
}

fn segment(
    old: &impl Source,
    new: &impl Source,
    header: &PatchHeader,
    index: &SampleIndex,
    number: u32,
    margin: u64,
) -> Result<(SegmentRecord, Vec<u8>), DeltaError> {
    let start = u64::from(number) * u64::from(header.segment);
    let length = header.length_of(number);
    let bytes = read_part(new, start, u32::try_from(length).unwrap_or(header.segment))?;
    let part_length = (length as u64 + margin).min(header.old.length);
    let part_start = index.alike(&bytes, part_length, start.saturating_sub(margin / 2));
    let part_start = part_start.min(header.old.length - part_length);
    // At most a segment and the margin.
    let part_length = u32::try_from(part_length).unwrap_or(u32::MAX);
    let part = read_part(old, part_start, part_length)?;
    let frame = compress(&part, &bytes).map_err(|code| DeltaError::Compress(get_error_name(code)))?;
    let frame_length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    Ok((SegmentRecord { part_start, part_length, frame: frame_length, digest: Digest::of(&bytes) }, frame))
}

fn compress(part: &[u8], bytes: &[u8]) -> Result<Vec<u8>, usize> {
    let mut context = CCtx::create();
    // All of the part has to be within reach from the segment's last byte.
    let reach = (part.len() + bytes.len()).max(1 << 10).next_power_of_two().ilog2();
    context.set_parameter(CParameter::CompressionLevel(LEVEL))?;
    context.set_parameter(CParameter::WindowLog(reach))?;
    context.set_parameter(CParameter::EnableLongDistanceMatching(true))?;
    context.ref_prefix(part)?;
    let mut frame = Vec::with_capacity(compress_bound(bytes.len()));
    context.compress2(&mut frame, bytes)?;
    Ok(frame)
}
