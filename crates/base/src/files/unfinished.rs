//! A file that is written under a hidden name beside its final place and renamed when it is complete; and a work directory
//! beside it.
//!
//! A killed process leaves them behind. The process that made them holds a lock on each, so the next one removes those whose
//! lock is free.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use uuid::Uuid;

use super::parent;
use crate::cancellation::{self, Cleanup};

const PREFIX: &str = ".nqrust.";
const SUFFIX: &str = ".unfinished";

/// A file without its final name. It is removed when it is dropped or a signal ends this process.
#[derive(Debug)]
pub struct UnfinishedFile {
    file: File,
    path: PathBuf,
    output: PathBuf,
    _cleanup: Cleanup,
}

impl UnfinishedFile {
    /// Begins the file `output`; only its owner can read it. What others have left unfinished in the same directory is
    /// removed.
    pub fn begin(output: &Path) -> io::Result<Self> {
        let directory = parent(output);
        sweep(directory);
        loop {
            let path = hidden(directory);
            let file =
                match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    opened => opened?,
                };
            if is_swept(&file) || file.metadata()?.nlink() == 0 {
                continue;
            }
            let forgotten = path.clone();
            let _cleanup = cancellation::on_end(move || drop(fs::remove_file(forgotten)));
            return Ok(Self { file, path, output: output.to_owned(), _cleanup });
        }
    }

    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives the file the permission bits `mode`, whatever the umask, and its final name, replacing any file there, after everything is
    /// on the disk.
    pub fn place(self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))?;
        self.file.sync_all()?;
        fs::rename(&self.path, &self.output)?;
        File::open(parent(&self.output))?.sync_all()
    }

    /// The same, whatever is on the disk by then.
    pub fn place_unsynced(self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))?;
        fs::rename(&self.path, &self.output)
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // Nothing is left to remove once the file has its name.
        let _ = fs::remove_file(&self.path);
    }
}

/// A work directory. It is removed with its content when it is dropped or a signal ends this process.
#[derive(Debug)]
pub struct UnfinishedDirectory {
    path: PathBuf,
    /// Its lock is held as long as it is open.
    _opened: File,
    _cleanup: Cleanup,
}

impl UnfinishedDirectory {
    /// Makes an empty directory in `directory`; only its owner can look into it. What others have left unfinished there is removed.
    pub fn begin(directory: &Path) -> io::Result<Self> {
        sweep(directory);
        loop {
            let path = hidden(directory);
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let opened = match File::open(&path) {
                // Another process has swept it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            if is_swept(&opened) || !path.exists() {
                continue;
            }
            let forgotten = path.clone();
            let _cleanup = cancellation::on_end(move || drop(fs::remove_dir_all(forgotten)));
            return Ok(Self { path, _opened: opened, _cleanup });
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnfinishedDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks what was just made; true if another process has swept it meanwhile. A file system without locks keeps leftovers.
fn is_swept(made: &File) -> bool {
    matches!(made.try_lock(), Err(TryLockError::WouldBlock))
}

fn hidden(directory: &Path) -> PathBuf {
    directory.join(format!("{PREFIX}{}{SUFFIX}", Uuid::new_v4().simple()))
}

/// Removes unfinished files and directories of processes that have ended.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| is_unfinished(&entry.file_name())) {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(entry.path());
        let Ok(opened) = opened else { continue };
        let Ok(metadata) = opened.metadata() else { continue };
        if opened.try_lock().is_err() {
            continue;
        }
        let _ = match metadata.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false if metadata.is_file() => fs::remove_file(entry.path()),
            false => Ok(()),
        };
    }
}

fn is_unfinished(name: &OsStr) -> bool {
    let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
    id.is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("node.img");
        fs::write(&output, "old").unwrap();
        let mut file = UnfinishedFile::begin(&output).unwrap();
        file.file_mut().write_all(b"new").unwrap();
        assert_eq!((fs::read(&output).unwrap(), names(directory.path()).len()), (b"old".to_vec(), 2));
        file.place(0o640).unwrap();
        assert_eq!(
            (fs::read(&output).unwrap(), names(directory.path())),
            (b"new".to_vec(), vec!["node.img".to_owned()])
        );
        assert_eq!(fs::metadata(&output).unwrap().permissions().mode() & 0o7777, 0o640);
        drop(UnfinishedFile::begin(&output).unwrap());
        assert_eq!(names(directory.path()), ["node.img"], "an error leaves nothing");
    }

    #[test]
    fn what_a_killed_process_left_is_swept_and_what_somebody_is_writing_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let left = format!("{PREFIX}{}{SUFFIX}", "0".repeat(32));
        for name in [&left, ".nqrust.mine.unfinished", ".tmpAbCd12"] {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        let left_directory = directory.path().join(format!("{PREFIX}{}{SUFFIX}", "1".repeat(32)));
        fs::create_dir_all(left_directory.join("within")).unwrap();
        let first = UnfinishedFile::begin(&directory.path().join("a")).unwrap();
        let found = names(directory.path());
        assert!(!found.contains(&left) && !left_directory.exists() && found.len() == 3, "{found:?}");
        let scratch = UnfinishedDirectory::begin(directory.path()).unwrap();
        fs::write(scratch.path().join("x"), "x").unwrap();
        let second = UnfinishedFile::begin(&directory.path().join("b")).unwrap();
        second.place(0o600).unwrap();
        assert!(scratch.path().join("x").exists(), "somebody works there");
        drop(scratch);
        first.place(0o600).unwrap();
        assert_eq!(names(directory.path()), [".nqrust.mine.unfinished", ".tmpAbCd12", "a", "b"]);
    }
}
