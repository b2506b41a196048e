//! Files that are replaced in one step.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};

use super::directory::{Attributes, Directory};
use super::unfinished::UnfinishedFile;
use super::{make_directory, parent};

/// Writes a file so that a reader, or a machine that loses power, sees the old content or the new, never
/// a mixture: temporary file beside it, flush, rename, flush of the directory.
/// The mode is exactly `mode` whatever the umask. Parents are made with mode 0755.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let (directory, name) = beside(path).with_context(what)?;
    let attributes = Attributes { mode, owner: None };
    directory
        .replace(name, &attributes, |file| file.write_all(bytes))
        .and_then(|()| directory.sync())
        .with_context(what)
}

/// The same with what `fill` writes, which may be large: what a killed process has left of such files in the directory is removed.
pub fn fill_atomically(path: &Path, mode: u32, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    filled(path, fill, |file| file.place(mode))
}

/// The same for what can be made again and is looked at before it is used: it comes to the disk when the kernel writes it there, and a machine
/// that loses power before can be left with a part of it.
pub fn fill_unsynced(path: &Path, mode: u32, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    filled(path, fill, |file| file.place_unsynced(mode))
}

/// Lets `fill` write a file that has no name yet, and `place` give it that of `path`.
fn filled(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
    place: impl FnOnce(UnfinishedFile) -> io::Result<()>,
) -> Result<()> {
    let what = || format!("writing {}", path.display());
    make_directory(parent(path), 0o755).with_context(what)?;
    let mut file = UnfinishedFile::begin(path).with_context(what)?;
    fill(file.file_mut()).and_then(|()| place(file)).with_context(what)
}

/// The directory that `path` is in, made if it is missing, and its name there.
fn beside(path: &Path) -> Result<(Directory, &OsStr)> {
    let name = path.file_name().context("the path does not end with a name")?;
    let parent = parent(path);
    make_directory(parent, 0o755)?;
    let directory = Directory::open(parent).with_context(|| format!("opening {}", parent.display()))?;
    Ok((directory, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn replaces_a_file_with_exactly_the_mode_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/secret");
        write_atomically(&path, b"one", 0o600).unwrap();
        write_atomically(&path, b"two", 0o640).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        let names: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file stays behind");
    }
}
