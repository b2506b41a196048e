//! Files: every error names the path, and what must not be half-written is replaced in one step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

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
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_directory(parent, 0o755)?;
    let mut temporary = TemporaryPath(parent.join(temporary_name(path)));
    let written = (|| -> io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary.0)?;
        file.write_all(bytes)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&temporary.0, path)?;
        temporary.0.clear();
        File::open(parent)?.sync_all()
    })();
    written.with_context(|| format!("writing {}", path.display()))
}

/// Makes a symbolic link so that a reader sees what was there or the link, never nothing. Parents are made with
/// mode 0755.
pub fn link_atomically(path: &Path, target: &Path) -> Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_directory(parent, 0o755)?;
    let mut temporary = TemporaryPath(parent.join(temporary_name(path)));
    let written = (|| -> io::Result<()> {
        // One that a process with the same number left behind.
        let _ = fs::remove_file(&temporary.0);
        std::os::unix::fs::symlink(target, &temporary.0)?;
        fs::rename(&temporary.0, path)?;
        temporary.0.clear();
        File::open(parent)?.sync_all()
    })();
    written.with_context(|| format!("making the link {}", path.display()))
}

fn temporary_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!(".{name}.{}.new", std::process::id())
}

/// A path that is removed when writing it did not come to its end. Empty once the file is in place.
struct TemporaryPath(PathBuf);

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_link_takes_the_place_of_what_was_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/unit");
        write_atomically(&path, b"old", 0o644).unwrap();
        for target in ["/dev/null", "/nonexistent"] {
            link_atomically(&path, Path::new(target)).unwrap();
            assert_eq!(fs::read_link(&path).unwrap(), Path::new(target));
        }
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary file stays behind"
        );
        link_atomically(directory.path(), Path::new("/dev/null")).unwrap_err();
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
