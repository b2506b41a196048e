//! Files: every error names the path, and what must not be half-written is replaced in one step.
//!
//! | Module | What it does |
//! |---|---|
//! | `atomic` | a file that is replaced in one step |
//! | [`directory`] | one directory by its descriptor, and the files right in it |
//! | [`named`] | files that a user names; `-` is standard input or output |
//! | [`root`] | files below a directory that stands for `/`, where users may have changed what is on the way |
//! | `unfinished` | a file that gets its name when it is whole |
//! | `acting` | file access with a user's rights |
//!
//! [`write_atomically`] is for paths that are this program's or the caller's own: links on the way are followed.

mod acting;
mod atomic;
pub mod directory;
mod entry;
pub mod named;
mod owner;
pub mod root;
mod unfinished;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::unistd::{AccessFlags, access};

use crate::failure::{Class, Classify, Failure};
use crate::size::ByteSize;

pub use atomic::{fill_atomically, fill_unsynced, write_atomically};
pub use directory::{Attributes, Directory, EntryKind, Status};
pub use entry::{open_entry, read_entry};
pub use owner::Owner;
pub use root::{Root, UserHome};
pub use unfinished::{UnfinishedDirectory, UnfinishedFile};

/// The most bytes of a text file.
const TEXT_LIMIT: u64 = 1 << 20;

/// Reads a whole file of at most `limit` bytes.
pub fn read_at_most(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).with_context(|| format!("reading {}", path.display()))?;
    if bytes.len() as u64 > limit {
        bail!("{} is larger than {limit} bytes", path.display());
    }
    Ok(bytes)
}

/// The same; none if there is nothing at `path`. What is there and cannot be read is an error and does not count as missing: a link
/// that leads nowhere, a directory, a file of others.
pub fn read_if_present(path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        _ => read_at_most(path, limit).map(Some),
    }
}

/// Reads a text file of at most 1 MiB.
pub fn read_text(path: &Path) -> Result<String> {
    text(path, read_at_most(path, TEXT_LIMIT)?)
}

/// The same; none if there is nothing at `path`, as [`read_if_present`] has it.
pub fn read_text_if_present(path: &Path) -> Result<Option<String>> {
    read_if_present(path, TEXT_LIMIT)?.map(|bytes| text(path, bytes)).transpose()
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).with_context(|| format!("{} is not a text file", path.display()))
}

/// The result of removing a file or a directory that need not exist.
pub fn removed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The room of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemRoom {
    pub size: ByteSize,
    /// For users other than root.
    pub free: ByteSize,
}

impl FileSystemRoom {
    /// That of the file system of `path`.
    ///
    /// # Errors
    /// [`Class::DiskIo`] if it cannot be asked.
    pub fn of(path: &Path) -> Result<Self> {
        let room = nix::sys::statvfs::statvfs(path)
            .class(Class::DiskIo, || format!("reading the free space of {}", path.display()))?;
        let bytes = |blocks: u64| ByteSize::bytes(blocks.saturating_mul(room.fragment_size()));
        Ok(Self { size: bytes(room.blocks()), free: bytes(room.blocks_available()) })
    }
}

/// The free space of the file system of `path` for users other than root, in bytes.
///
/// # Errors
/// [`Class::DiskIo`] if it cannot be asked.
pub fn free_space(path: &Path) -> Result<ByteSize> {
    FileSystemRoom::of(path).map(|room| room.free)
}

/// Makes a directory and its parents; those that are new get `mode`.
pub fn make_directory(path: &Path, mode: u32) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(mode);
    builder.create(path).with_context(|| format!("making the directory {}", path.display()))
}

/// Creates the output directory that a user named, if it is missing; new directories get `mode`.
///
/// # Errors
/// As [`unusable`] has them.
pub fn output_directory(path: &Path, mode: u32) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(mode).create(path);
    let usable = || access(path, AccessFlags::W_OK | AccessFlags::X_OK).map_err(io::Error::from);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::new(Class::Invalid, format!("{} is not a directory", path.display()))
                .hint("Name a directory, or a path at which there is nothing.")
        }
        _ => unusable(path, error),
    };
    Ok(made.and_then(|()| usable()).map_err(failed)?)
}

/// The failure of beginning to write at `path`, which a user named: [`Class::Invalid`] where nothing can be written there
/// whatever the disk is like, as the path is of something else or leads nowhere; [`Class::DiskIo`] where the file system
/// refuses.
pub fn unusable(path: &Path, error: io::Error) -> Failure {
    use io::ErrorKind as Kind;
    let (class, hint) = match error.kind() {
        Kind::NotFound
        | Kind::NotADirectory
        | Kind::AlreadyExists
        | Kind::IsADirectory
        | Kind::InvalidFilename => (Class::Invalid, Some("Name another path, in a directory that exists.")),
        Kind::PermissionDenied | Kind::ReadOnlyFilesystem => {
            (Class::DiskIo, Some("Name a path at which you may write."))
        }
        _ => (Class::DiskIo, None),
    };
    let failure = Failure::new(class, format!("writing to {}", path.display())).because(error);
    hint.into_iter().fold(failure, Failure::hint)
}

/// The directory in which the file at `path` is.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_one_is_a_wrong_argument() {
        use crate::failure::class_of;
        let directory = tempfile::tempdir().unwrap();
        output_directory(&directory.path().join("a/b"), 0o755).unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [&file, &file.join("below")] {
            assert_eq!(
                class_of(&output_directory(path, 0o755).unwrap_err()),
                Class::Invalid,
                "{}",
                path.display()
            );
        }
        let full = io::Error::from_raw_os_error(nix::libc::ENOSPC);
        assert_eq!(unusable(Path::new("/full"), full).class(), Class::DiskIo);
    }

    #[test]
    fn an_error_names_the_path() {
        let error = read_text(Path::new("/nonexistent/file")).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/file"));
    }

    #[test]
    fn only_what_is_not_there_counts_as_missing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!(read_if_present(&path, 9).unwrap(), None);
        assert_eq!(read_text_if_present(&directory.path().join("no/such")).unwrap(), None);
        fs::write(&path, "text").unwrap();
        assert_eq!(read_if_present(&path, 9).unwrap().as_deref(), Some(&b"text"[..]));
        assert_eq!(read_text_if_present(&path).unwrap().as_deref(), Some("text"));
        let dangling = directory.path().join("dangling");
        std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
        for unreadable in [dangling.as_path(), directory.path(), &path.join("below")] {
            let name = unreadable.display();
            assert!(
                read_if_present(unreadable, 9).is_err() && read_text_if_present(unreadable).is_err(),
                "{name}"
            );
        }
        assert!(read_if_present(&path, 3).is_err());
    }

    #[test]
    fn refuses_a_file_above_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large");
        fs::write(&path, [0; 11]).unwrap();
        assert!(read_at_most(&path, 10).is_err());
        assert_eq!(read_at_most(&path, 11).unwrap().len(), 11);
    }
}
