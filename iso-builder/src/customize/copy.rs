//! A customised copy of an ISO; the ISO itself stays unchanged.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Result, bail};
use base::failure::{Class, Classify, Failure};

use super::change::{self, AreaContents};
use super::location::{ByteRun, CustomisationLocation};

/// Writes the customised ISO to the file `output`, by way of a temporary name beside it; only its owner can read it.
/// The kernel copies, and shares the blocks if the file system can.
pub fn to_file(place: &CustomisationLocation, wanted: &AreaContents, output: &Path) -> Result<u64> {
    let what = || format!("copying {} to {}", place.path.display(), output.display());
    if output.exists() && !fs::metadata(output).is_ok_and(|metadata| metadata.is_file()) {
        bail!(
            Failure::new(Class::Invalid, format!("{} is not a file", output.display()))
                .hint("Name a file with -o, or write to standard output with `-o -`.")
        );
    }
    let directory = output.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut copy = tempfile::NamedTempFile::new_in(directory).class(Class::DiskIo, what)?;
    let iso = open(place)?;
    io::copy(&mut iso.take(place.end), copy.as_file_mut()).class(Class::DiskIo, what)?;
    let written = change::apply(copy.as_file(), place, wanted).class(Class::DiskIo, what)?;
    copy.as_file().sync_all().class(Class::DiskIo, what)?;
    copy.persist(output).map_err(|error| error.error).class(Class::DiskIo, what)?;
    Ok(written)
}

/// Writes the customised ISO to `output`, from its first byte to its last.
pub fn to_stream(place: &CustomisationLocation, wanted: &AreaContents, output: &mut dyn Write) -> Result<()> {
    let what = || format!("writing the customised {}", place.path.display());
    let mut iso = open(place)?;
    let mut at = 0;
    for (span, bytes) in patches(place, wanted) {
        pass(&mut iso, span.at - at, output).class(Class::DiskIo, what)?;
        output.write_all(&bytes).class(Class::DiskIo, what)?;
        let zeros = span.length - bytes.len() as u64;
        io::copy(&mut io::repeat(0).take(zeros), output).class(Class::DiskIo, what)?;
        at = span.at + span.length;
        iso.seek(SeekFrom::Start(at)).class(Class::DiskIo, what)?;
    }
    pass(&mut iso, place.end - at, output).class(Class::DiskIo, what)?;
    output.flush().class(Class::DiskIo, what)
}

fn open(place: &CustomisationLocation) -> Result<File> {
    File::open(&place.path).class(Class::DiskIo, || format!("opening {}", place.path.display()))
}

/// Copies `length` bytes; fewer are an error.
fn pass(iso: &mut File, length: u64, output: &mut dyn Write) -> io::Result<()> {
    let count = io::copy(&mut iso.take(length), output)?;
    if count < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// The runs of bytes with their new contents, in the order of the medium. Contents that are too short are filled up
/// with zeros.
fn patches(place: &CustomisationLocation, wanted: &AreaContents) -> Vec<(ByteRun, Vec<u8>)> {
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
