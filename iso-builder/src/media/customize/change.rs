//! Changing a customized medium in place.
//!
//! The order makes a power cut harmless: first the header of the area says that it is being written, then everything
//! else is written, then the header describes the content; each is flushed before the next. At every moment readers
//! find the old content, the new one, or an area that they refuse. Only blocks that differ are written.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use medium::customization::area::{self, HEADER};
use medium::customization::argument;
use nix::libc;

use super::location::{ByteRun, CustomizationLocation};

/// Bytes that are compared and written as a unit.
const BLOCK_BYTES: usize = 4096;
/// Bytes that are read at a time; a multiple of the block.
const CHUNK_BYTES: usize = 1 << 20;

/// Access to the bytes of a medium.
pub trait MediumWriter {
    /// Fills `buffer` from the bytes at `at`.
    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;
    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Returns when everything that was written is durable.
    fn flush(&self) -> io::Result<()>;
}

impl MediumWriter for File {
    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(buffer, at)
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn flush(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// The contents of the area and of GRUB's file. The rest of the area is zeros.
#[derive(Clone, Debug)]
pub struct AreaContents {
    pub area: Vec<u8>,
    pub grub: Vec<u8>,
}

impl AreaContents {
    /// Those of a medium that is not customized.
    pub fn as_built() -> Result<Self> {
        Ok(Self { area: Vec::new(), grub: argument::grub(&[], None)? })
    }
}

/// Opens the medium for writing. A device in use, and a file that another process writes to, are refused.
pub fn open(path: &Path) -> Result<File> {
    let what = || format!("opening {} for writing", path.display());
    let device = path.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
    let flags = if device { libc::O_EXCL } else { 0 };
    let file = match File::options().read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if device && error.raw_os_error() == Some(libc::EBUSY) => {
            let failure = Failure::new(Class::DiskIo, what()).because(error);
            return Err(failure.hint("Unmount it first; something uses it.").into());
        }
        opened => opened.class(Class::DiskIo, what)?,
    };
    match file.try_lock() {
        Err(std::fs::TryLockError::WouldBlock) => {
            let what = format!("{} is being changed by another process", path.display());
            Err(Failure::new(Class::DiskIo, what).hint("Wait for it to finish, then start again.").into())
        }
        Err(std::fs::TryLockError::Error(error)) => Err(error).class(Class::DiskIo, what),
        Ok(()) => Ok(file),
    }
}

/// Makes a file readable by its owner only, since it will hold secrets. Returns whether others can read it all the
/// same, which is so on file systems without permissions.
pub fn protect(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o077 == 0 {
        return Ok(true);
    }
    let mode = metadata.permissions().mode() & 0o700;
    Ok(file.set_permissions(Permissions::from_mode(mode)).is_ok())
}

/// Writes `wanted` at `place` of `target`; returns how many bytes were written.
pub fn apply(
    target: &dyn MediumWriter,
    place: &CustomizationLocation,
    wanted: &AreaContents,
) -> io::Result<u64> {
    let mut header = wanted.area.clone();
    header.resize(HEADER, 0);
    let body = wanted.area.get(HEADER..).unwrap_or_default();
    let (first, rest) = split(&place.area, HEADER as u64);
    let grub = |act: &mut BlockAction<'_>| differences(target, &place.grub, &wanted.grub, act);
    let rest = |act: &mut BlockAction<'_>| differences(target, &rest, body, act);
    let head = |bytes: &[u8], act: &mut BlockAction<'_>| differences(target, &first, bytes, act);

    let mut found = 0;
    let mut count = |bytes: &[u8], _| {
        found += bytes.len() as u64;
        Ok(())
    };
    head(&header, &mut count)?;
    grub(&mut count)?;
    rest(&mut count)?;
    if found == 0 {
        return Ok(0);
    }
    let mut written = 0;
    let mut write = |bytes: &[u8], at| {
        written += bytes.len() as u64;
        target.write(bytes, at)
    };
    head(&area::unfinished(), &mut write)?;
    target.flush()?;
    grub(&mut write)?;
    rest(&mut write)?;
    target.flush()?;
    head(&header, &mut write)?;
    target.flush()?;
    Ok(written)
}

/// Called with bytes that differ, and where they belong.
type BlockAction<'a> = dyn FnMut(&[u8], u64) -> io::Result<()> + 'a;

/// Visits the blocks of `spans` that differ from `wanted` (with zeros behind it); adjacent blocks come together.
fn differences(
    target: &dyn MediumWriter,
    spans: &[ByteRun],
    wanted: &[u8],
    act: &mut BlockAction<'_>,
) -> io::Result<()> {
    let mut wanted = wanted;
    let mut there = vec![0; CHUNK_BYTES];
    let mut should = vec![0; CHUNK_BYTES];
    for span in spans {
        let mut done = 0;
        while done < span.length {
            let length = usize::try_from(span.length - done).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let (there, should) = (&mut there[..length], &mut should[..length]);
            target.read(there, span.at + done)?;
            let (given, later) = wanted.split_at(wanted.len().min(length));
            should[..given.len()].copy_from_slice(given);
            should[given.len()..].fill(0);
            wanted = later;
            for (start, end) in runs(there, should) {
                act(&should[start..end], span.at + done + start as u64)?;
            }
            done += length as u64;
        }
    }
    Ok(())
}

/// Runs of whole blocks that differ, in bytes.
fn runs(there: &[u8], should: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (number, (one, other)) in there.chunks(BLOCK_BYTES).zip(should.chunks(BLOCK_BYTES)).enumerate() {
        if one == other {
            continue;
        }
        let (start, end) = (number * BLOCK_BYTES, number * BLOCK_BYTES + one.len());
        match runs.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => runs.push((start, end)),
        }
    }
    runs
}

/// The first `length` bytes of `spans`, and the rest.
fn split(spans: &[ByteRun], length: u64) -> (Vec<ByteRun>, Vec<ByteRun>) {
    let (mut first, mut rest, mut left) = (Vec::new(), Vec::new(), length);
    for span in spans {
        let taken = span.length.min(left);
        left -= taken;
        first.extend((taken > 0).then_some(ByteRun { at: span.at, length: taken }));
        let more = ByteRun { at: span.at + taken, length: span.length - taken };
        rest.extend((more.length > 0).then_some(more));
    }
    (first, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use medium::customization::Content;
    use std::cell::{Cell, RefCell};

    /// A device that loses power after a number of writes, the last of which may be incomplete. Writes that were not
    /// flushed by then are reordered: the last one is on the device, and those before it are not.
    struct FailingDevice {
        lasting: RefCell<Vec<u8>>,
        pending: RefCell<Vec<(Vec<u8>, u64)>>,
        writes: Cell<usize>,
        torn: usize,
    }

    const AT: u64 = 8192;

    fn place() -> CustomizationLocation {
        let area = vec![ByteRun { at: AT, length: 5000 }, ByteRun { at: 65_536, length: 300_000 }];
        let grub = vec![ByteRun { at: 40_960, length: argument::GRUB_LENGTH as u64 }];
        CustomizationLocation { path: "/x".into(), area, grub, end: 400_000, directory: false }
    }

    fn wanted(text: &str) -> AreaContents {
        let nodes = [("default.yaml".to_owned(), model::config::Secret::new(text.repeat(3000)))];
        let arguments = vec![text.parse().unwrap()];
        let grub = argument::grub(&arguments, None).unwrap();
        let content = Content { nodes: nodes.into(), arguments, ..Content::default() };
        AreaContents { area: area::bytes(&content).unwrap(), grub }
    }

    fn original() -> AreaContents {
        AreaContents::as_built().unwrap()
    }

    impl FailingDevice {
        fn new(bytes: Vec<u8>, writes: usize, torn: usize) -> Self {
            Self { lasting: bytes.into(), pending: RefCell::default(), writes: writes.into(), torn }
        }

        fn put(&self, bytes: &[u8], at: u64) {
            let at = usize::try_from(at).unwrap();
            self.lasting.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    impl MediumWriter for FailingDevice {
        fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
            let at = usize::try_from(at).unwrap();
            buffer.copy_from_slice(&self.lasting.borrow()[at..at + buffer.len()]);
            Ok(())
        }

        fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
            if self.writes.get() == 0 {
                self.put(&bytes[..self.torn.min(bytes.len())], at);
                return Err(io::Error::other("no power"));
            }
            self.writes.set(self.writes.get() - 1);
            self.pending.borrow_mut().push((bytes.to_vec(), at));
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            for (bytes, at) in self.pending.borrow_mut().drain(..) {
                self.put(&bytes, at);
            }
            Ok(())
        }
    }

    /// The contents of area and GRUB's file, as readers find them.
    fn found(bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let cut = |spans: &[ByteRun]| {
            let cut = |span: &ByteRun| {
                let at = usize::try_from(span.at).unwrap();
                bytes[at..at + usize::try_from(span.length).unwrap()].to_vec()
            };
            spans.iter().flat_map(cut).collect::<Vec<_>>()
        };
        (cut(&place().area), cut(&place().grub))
    }

    fn image(wanted: &AreaContents) -> Vec<u8> {
        let empty = vec![0; 400_000];
        let target = FailingDevice::new(empty, usize::MAX, 0);
        apply(&target, &place(), wanted).unwrap();
        target.lasting.into_inner()
    }

    #[test]
    fn a_power_cut_leaves_the_old_content_or_the_new_or_an_area_that_is_refused() {
        for (from, to) in [
            (original(), wanted("one=1")),
            (wanted("one=1"), wanted("two=22")),
            (wanted("one=1"), original()),
        ] {
            let (before, after) = (image(&from), image(&to));
            let (mut refused, mut finished) = (0, false);
            for (writes, torn) in (0..12).flat_map(|writes| [0, 512, 4096].map(|torn| (writes, torn))) {
                let target = FailingDevice::new(before.clone(), writes, torn);
                finished = apply(&target, &place(), &to).is_ok();
                let bytes = target.lasting.into_inner();
                let (area, grub) = found(&bytes);
                match area::read(&*area) {
                    Err(_) => refused += 1,
                    Ok(_) => assert!(
                        [&before, &after].map(|whole| found(whole)).contains(&(area, grub)),
                        "{writes} {torn}"
                    ),
                }
                let again = FailingDevice::new(bytes, usize::MAX, 0);
                apply(&again, &place(), &to).unwrap();
                assert!(again.lasting.into_inner() == after, "another run mends it ({writes}, {torn})");
            }
            assert!(finished && refused > 3, "{refused}");
        }
    }

    #[test]
    fn what_is_there_already_is_not_written() {
        let target = FailingDevice::new(image(&wanted("one=1")), 0, 0);
        assert_eq!(apply(&target, &place(), &wanted("one=1")).unwrap(), 0);
    }

    #[test]
    fn only_blocks_that_differ_are_written_and_going_back_gives_the_same_bytes() {
        let before = image(&original());
        let target = FailingDevice::new(before.clone(), usize::MAX, 0);
        let written = apply(&target, &place(), &wanted("one=1")).unwrap();
        assert!(written < 64 << 10, "{written}");
        apply(&target, &place(), &original()).unwrap();
        assert!(target.lasting.into_inner() == before);
    }
}
