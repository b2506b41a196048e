//! Files: every error names the path, and what must not be half-written is replaced in one step.
//!
//! | Module | What it does |
//! |---|---|
//! | [`directory`] | one directory by its descriptor, and the files right in it |
//! | [`root`] | files below a directory that stands for `/`, where users may have changed what is on the way |
//! | `acting` | a user's rights while root runs |
//!
//! [`write_atomically`] is for paths that are this program's or the caller's own: links on the way are followed.

mod acting;
pub mod directory;
mod owner;
pub mod root;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

pub use directory::{Attributes, Directory, EntryKind, Status};
pub use owner::Owner;
pub use root::{Home, Root};

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

/// Reads a text file of at most 1 MiB.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = read_at_most(path, 1 << 20)?;
    String::from_utf8(bytes).with_context(|| format!("reading {} as UTF-8", path.display()))
}

/// Makes a directory and its parents; those that are new get `mode`.
pub fn make_directory(path: &Path, mode: u32) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(mode);
    builder.create(path).with_context(|| format!("making the directory {}", path.display()))
}

/// Writes a file so that a reader, or a machine that loses power, sees the old content or the new, never
/// a mixture: temporary file beside it, flush, rename, flush of the directory.
/// The mode is exactly `mode` whatever the umask. Parents are made with mode 0755.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    fill_atomically(path, mode, |file| file.write_all(bytes))
}

/// The same with what `fill` writes into the file.
pub fn fill_atomically(path: &Path, mode: u32, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let (directory, name) = beside(path).with_context(what)?;
    let attributes = Attributes { mode, owner: None };
    directory.replace(name, &attributes, fill).and_then(|()| directory.sync()).with_context(what)
}

/// The directory that `path` is in, made if it is missing, and its name there.
fn beside(path: &Path) -> Result<(Directory, &OsStr)> {
    let name = path.file_name().context("the path does not end with a name")?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_directory(parent, 0o755)?;
    let directory = Directory::open(parent).with_context(|| format!("opening {}", parent.display()))?;
    Ok((directory, name))
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn an_error_names_the_path() {
        let error = read_text(Path::new("/nonexistent/file")).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/file"));
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
