//! Files that are written past the kernel's cache, where that is possible.
//!
//! What is written here is not read again before its file system is mounted anew. Through the cache each byte would be copied
//! once more, would displace what the live system needs, and would wait for the flush at the end: on a virtual machine with two
//! processors and a fast disk, 5 GiB took 32 s through the cache and 8 s past it. Small pieces go through the cache, whose one
//! flush takes less time than waiting for the disk after each.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

use crate::execute::disk::device::{AlignedBuffer, PAGE_BYTES};

/// The least number of bytes that are written past the cache at once.
const DIRECT_BYTES: usize = 1 << 20;

/// A file that is written from its start to its end. Its bytes are on the disk after a flush of the file system.
#[derive(Debug)]
pub(super) struct DirectFile {
    file: File,
    length: u64,
    /// What the flag `O_DIRECT` of the open file is.
    direct: bool,
    /// Whether the file system refused direct I/O.
    refused: bool,
}

impl DirectFile {
    /// `file` is empty and was opened for writing, without `O_DIRECT`.
    pub(super) fn new(file: File) -> Self {
        Self { file, length: 0, direct: false, refused: false }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Writes `bytes` to the end of the file: whole pages of an [`AlignedBuffer`] past the cache, if there are enough of them and
    /// the file ends with a whole page so far.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (whole, rest) = bytes.split_at(self.whole_pages(bytes));
        if !whole.is_empty() {
            match self.append_with(true, whole) {
                // The file system has no direct I/O (open(2)), or asks for other sizes than pages.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.refused = true;
                    self.append_with(false, whole)
                }
                written => written,
            }?;
        }
        if rest.is_empty() { Ok(()) } else { self.append_with(false, rest) }
    }

    /// How many of `bytes` can be written past the cache.
    fn whole_pages(&self, bytes: &[u8]) -> usize {
        let aligned = AlignedBuffer::suits(bytes) && self.length.is_multiple_of(PAGE_BYTES as u64);
        match !self.refused && aligned && bytes.len() >= DIRECT_BYTES {
            true => bytes.len() - bytes.len() % PAGE_BYTES,
            false => 0,
        }
    }

    fn append_with(&mut self, direct: bool, bytes: &[u8]) -> io::Result<()> {
        if direct != self.direct {
            let flags = OFlag::from_bits_retain(fcntl(&self.file, FcntlArg::F_GETFL)?);
            fcntl(&self.file, FcntlArg::F_SETFL(flags ^ OFlag::O_DIRECT))?;
            self.direct = direct;
        }
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pieces_of_any_length_and_place_in_memory_make_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut memory = AlignedBuffer::new(3 * DIRECT_BYTES);
        memory.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + (at >> 11)) as u8);
        let (page, large) = (PAGE_BYTES, DIRECT_BYTES);
        // Begin and length in memory; the last ones follow an end that is no whole page.
        for pieces in [
            vec![(0, 2 * large), (0, 3 * large), (page, large)],
            vec![(0, large + 5), (0, large), (1, large)],
            vec![(1, large), (0, 2 * large), (0, page), (0, large)],
            vec![(0, 1), (0, 0), (0, 3 * large)],
        ] {
            let mut file = DirectFile::new(File::create(&path).unwrap());
            let mut expected = Vec::new();
            for (begin, length) in pieces {
                file.append(&memory[begin..begin + length]).unwrap();
                expected.extend_from_slice(&memory[begin..begin + length]);
            }
            assert!(fs::read(&path).unwrap() == expected);
        }
    }

    #[test]
    fn what_has_no_direct_io_is_written_through_the_cache() {
        let device = File::options().write(true).open("/dev/null").unwrap();
        let (mut file, memory) = (DirectFile::new(device), AlignedBuffer::new(DIRECT_BYTES));
        file.append(&memory).unwrap();
        file.append(&memory).unwrap();
        assert!(file.refused && !file.direct);
        assert_eq!(file.length, 2 * DIRECT_BYTES as u64);
    }
}
