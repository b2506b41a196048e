//! A customized copy of an ISO; the ISO itself stays unchanged.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Result, bail};
use base::failure::{Class, Classify, Failure};
use base::files::{self, UnfinishedFile};
use formats::iso9660::address::{Offset, Source};
use medium::reader::MediumReader;

use super::change::{self, AreaContents};
use super::location::{ByteRun, CustomizationLocation};

/// Bytes that are copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes the customized ISO to the file `output`, which gets its name when it is whole; only its owner can read it. Of an ISO on this
/// machine the kernel copies, and shares the blocks if the file system can.
pub fn to_file(
    medium: &MediumReader,
    place: &CustomizationLocation,
    wanted: &AreaContents,
    output: &Path,
) -> Result<u64> {
    let what = || format!("copying {} to {}", place.path.display(), output.display());
    if output.exists() && !fs::metadata(output).is_ok_and(|metadata| metadata.is_file()) {
        bail!(
            Failure::new(Class::Invalid, format!("{} is not a file", output.display()))
                .hint("Name a file with -o, or write to standard output with `-o -`.")
        );
    }
    let mut copy = UnfinishedFile::begin(output).map_err(|error| files::unusable(output, error))?;
    match medium.local() {
        Some(path) => {
            let iso = File::open(path).class(Class::DiskIo, || format!("opening {}", path.display()))?;
            io::copy(&mut iso.take(place.end), copy.file_mut()).class(Class::DiskIo, what)?;
        }
        None => pass(image(medium)?, 0, place.end, copy.file_mut()).class(Class::DiskIo, what)?,
    }
    let written = change::apply(copy.file(), place, wanted).class(Class::DiskIo, what)?;
    copy.place(0o600).class(Class::DiskIo, what)?;
    Ok(written)
}

/// Writes the customized ISO to `output`, from its first byte to its last.
pub fn to_stream(
    medium: &MediumReader,
    place: &CustomizationLocation,
    wanted: &AreaContents,
    output: &mut dyn Write,
) -> Result<()> {
    let what = || format!("writing the customized {}", place.path.display());
    let iso = image(medium)?;
    let mut at = 0;
    for (span, bytes) in patches(place, wanted) {
        pass(iso, at, span.at, output).class(Class::DiskIo, what)?;
        output.write_all(&bytes).class(Class::DiskIo, what)?;
        let zeros = span.length - bytes.len() as u64;
        io::copy(&mut io::repeat(0).take(zeros), output).class(Class::DiskIo, what)?;
        at = span.at + span.length;
    }
    pass(iso, at, place.end, output).class(Class::DiskIo, what)?;
    output.flush().class(Class::DiskIo, what)
}

fn image(medium: &MediumReader) -> Result<&dyn Source> {
    medium.image().ok_or_else(|| {
        Failure::new(Class::Invalid, format!("{} is not an ISO", medium.path().display())).into()
    })
}

/// Copies the bytes from `start` to `end`; fewer are an error.
fn pass(iso: &dyn Source, start: u64, end: u64, output: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = start;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let count = iso.read_at(&mut buffer[..wanted], Offset(at))?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        output.write_all(&buffer[..count])?;
        at += count as u64;
    }
    Ok(())
}

/// The runs of bytes with their new contents, in the order of the medium. Contents that are too short are filled up
/// with zeros.
fn patches(place: &CustomizationLocation, wanted: &AreaContents) -> Vec<(ByteRun, Vec<u8>)> {
    let cut = |spans: &[ByteRun], bytes: &[u8]| {
        let mut rest = bytes;
        let patch = |span: &ByteRun| {
            let length = usize::try_from(span.length).unwrap_or(usize::MAX).min(rest.len());
            let (own, later) = rest.split_at(length);
            rest = later;
            (*span, own.to_vec())
        };
        spans.iter().map(patch).collect::<Vec<_>>()
    };
    let mut patches = [cut(&place.area, &wanted.area), cut(&place.grub, &wanted.grub)].concat();
    patches.sort_by_key(|(span, _)| span.at);
    patches
}
