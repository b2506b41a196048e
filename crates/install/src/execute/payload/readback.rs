//! Reading back what was written through a file system, from a fresh mount: from the disk, not from memory.
//!
//! Files are read several at a time, since hashing takes longer than reading on many machines.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Result;

use super::image::fill;
use super::store::PARALLEL_FILES;
use crate::execute::disk::device;
use base::digest::{Digest, Hasher};
use base::failure::{Class, Classify, Failure};
use base::parallel::{for_each_interruptible, locked};

const PIECE_BYTES: usize = 1 << 20;

/// A file as it was written.
pub(crate) struct WrittenFile<'a> {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) digest: Digest,
    /// Opens the right bytes again, to find the first wrong one.
    pub(crate) again: Box<dyn Fn() -> Result<Box<dyn Read + 'a>> + Sync + 'a>,
}

/// Reads each file below `root` and compares it with what was written. `advance` receives the bytes as they are read.
pub(crate) fn check(
    root: &Path,
    written: &[WrittenFile<'_>],
    go_on: &(dyn Fn() -> Result<(), Failure> + Sync),
    advance: &mut (dyn FnMut(u64) + Send),
) -> Result<()> {
    let advance = Mutex::new(advance);
    for_each_interruptible(written, PARALLEL_FILES, |file, others_go_on| {
        one(root, file, &mut |bytes| {
            go_on()?;
            others_go_on()?;
            locked(&advance)(bytes);
            Ok(())
        })
    })
}

fn one(root: &Path, file: &WrittenFile<'_>, heard: &mut dyn FnMut(u64) -> Result<(), Failure>) -> Result<()> {
    let path = root.join(&file.path);
    let told = |at: u64| format!("reading {} back, {}, at byte {at}", file.name, file.path.display());
    let mut found = File::open(&path).class(Class::DiskIo, || told(0))?;
    let (mut hasher, mut buffer, mut size) = (Hasher::default(), vec![0; PIECE_BYTES], 0);
    loop {
        let count = fill(&mut found, &mut buffer).class(Class::DiskIo, || told(size))?;
        hasher.update(&buffer[..count]);
        size += count as u64;
        heard(count as u64)?;
        if count < buffer.len() {
            break;
        }
    }
    if (size, hasher.finish()) == (file.size, file.digest) {
        return Ok(());
    }
    let place = match first_difference(&path, file)? {
        Some(place) => format!("from its byte {place} on, "),
        // The second read was right: the disk returns different bytes each time.
        None => String::new(),
    };
    let what = format!("{}, {place}does not read back as written ({})", file.name, file.path.display());
    Err(Failure::new(Class::DiskIo, what).hint(device::UNRELIABLE).into())
}

/// The position of the first byte that differs from what was written, or is missing.
fn first_difference(path: &Path, file: &WrittenFile<'_>) -> Result<Option<u64>> {
    let mut found = File::open(path).class(Class::DiskIo, || format!("opening {}", path.display()))?;
    let mut good = (file.again)()?;
    let (mut here, mut there, mut done) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES], 0);
    loop {
        let (count, wanted) = (fill(&mut found, &mut here)?, fill(&mut good, &mut there)?);
        let length = count.min(wanted);
        if let Some(place) = device::first_difference(&here[..length], &there[..length]) {
            return Ok(Some(done + place));
        }
        done += length as u64;
        match (count == wanted, count) {
            (false, _) => return Ok(Some(done)),
            (true, PIECE_BYTES) => {}
            (true, _) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};

    fn written(name: &str, bytes: &'static [u8]) -> WrittenFile<'static> {
        WrittenFile {
            path: name.into(),
            name: format!("the file {name}"),
            size: bytes.len() as u64,
            digest: Digest::of(bytes),
            again: Box::new(move || Ok(Box::new(bytes))),
        }
    }

    static GOOD: [u8; 2 * PIECE_BYTES + 5] = [7; 2 * PIECE_BYTES + 5];

    #[test]
    fn what_differs_is_named_with_the_first_byte_and_what_is_missing_too() {
        let root = tempfile::tempdir().unwrap();
        let good = || vec![written("a", b"one"), written("b", &GOOD), written("c", b"")];
        let mut wrong = GOOD.to_vec();
        wrong[PIECE_BYTES + 3] = 8;
        let cases: [(&str, Option<&[u8]>, &str); 6] = [
            ("b", Some(&GOOD), ""),
            ("b", Some(&wrong), "the file b, from its byte 1048579 on, does not read back as written (b)"),
            ("b", Some(&GOOD[..PIECE_BYTES]), "from its byte 1048576 on"),
            ("c", Some(b"more"), "the file c, from its byte 0 on"),
            ("a", Some(b"onE"), "from its byte 2 on"),
            ("a", None, "reading the file a back, a, at byte 0"),
        ];
        for (name, content, told) in cases {
            for file in [("a", &b"one"[..]), ("b", &GOOD), ("c", b"")] {
                std::fs::write(root.path().join(file.0), file.1).unwrap();
            }
            match content {
                Some(content) => std::fs::write(root.path().join(name), content).unwrap(),
                None => std::fs::remove_file(root.path().join(name)).unwrap(),
            }
            let mut read = 0;
            let checked = check(root.path(), &good(), &|| Ok(()), &mut |bytes| read += bytes);
            match (checked, told) {
                (Ok(()), "") => assert_eq!(read, GOOD.len() as u64 + 3),
                (Ok(()), told) => panic!("not found: {told}"),
                (Err(error), told) => {
                    let text = render(&error);
                    assert!(class_of(&error) == Class::DiskIo && !told.is_empty(), "{text}");
                    assert!(text.contains(told), "{text}");
                }
            }
        }
    }
}
