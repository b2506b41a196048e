//! The digests of files of the host, and of directories with everything in them. The inputs of a build are identified
//! by these.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use base::digest::{Digest, Hasher};
use base::failure::{Class, Classify, Failure};
use walkdir::WalkDir;

/// Digest and length in bytes.
pub fn digest_of_file(path: &Path) -> Result<(Digest, u64)> {
    digest_of_opened(&File::open(path).with_context(|| format!("opening {}", path.display()))?, path)
}

/// The same of a file that is open.
pub(super) fn digest_of_opened(file: &File, path: &Path) -> Result<(Digest, u64)> {
    Digest::of_reader(file).with_context(|| format!("reading {}", path.display()))
}

/// The state of a path in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedFile {
    Absent,
    /// It has another content than the one whose digest is known from elsewhere.
    Damaged,
    Sound,
}

impl CachedFile {
    /// Reads the file at `path` and compares it with this digest, and with this length where it is known. Everything that
    /// comes out of a cache is read on every use: other programs and other machines may write there.
    ///
    /// # Errors
    /// If something is there that cannot be opened. A file that cannot be read to its end is damaged.
    pub fn of(path: &Path, sha256: Digest, length: Option<u64>) -> Result<Self> {
        let file = match File::open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::Absent),
            file => file.class(Class::DiskIo, || format!("opening {}", path.display()))?,
        };
        let fits = |(found, read)| found == sha256 && length.is_none_or(|length| length == read);
        Ok(if Digest::of_reader(file).is_ok_and(fits) { Self::Sound } else { Self::Damaged })
    }
}

/// The digest of a file's content, or of a directory: names, kinds, contents, link targets and the user's execute
/// bit; not owners, times or the other mode bits, which differ between checkouts of the same thing.
pub fn digest_of_path(path: &Path) -> Result<Digest> {
    digest_of_path_by(path, &|file| Ok(digest_of_file(file)?.0))
}

/// The same, where `digest` gives the digest of a file.
pub(super) fn digest_of_path_by(path: &Path, digest: &dyn Fn(&Path) -> Result<Digest>) -> Result<Digest> {
    if !path.is_dir() {
        return digest(path);
    }
    let mut hasher = TreeHasher::default();
    for entry in WalkDir::new(path).min_depth(1).sort_by_file_name() {
        let entry = entry.with_context(|| format!("reading {}", path.display()))?;
        let (kind, content) = if entry.file_type().is_dir() {
            (TreeHasher::DIRECTORY, Digest::of(b""))
        } else if entry.file_type().is_symlink() {
            (TreeHasher::LINK, Digest::of(fs::read_link(entry.path())?.as_os_str().as_encoded_bytes()))
        } else if !entry.file_type().is_file() {
            // Opening a pipe would wait for ever, and reading /dev/zero would never end.
            let what = format!("{} is neither a file, a directory nor a link", entry.path().display());
            return Err(Failure::new(Class::Invalid, what).hint("Remove it.").into());
        } else {
            let executable = entry.metadata()?.permissions().mode() & 0o100 != 0;
            (TreeHasher::file(executable), digest(entry.path())?)
        };
        hasher.add(kind, entry.path().strip_prefix(path)?, content);
    }
    Ok(hasher.finish())
}

/// The digest of a directory ([`digest_of_path`]), from its entries in the order of their paths.
#[derive(Default)]
#[allow(missing_debug_implementations)]
pub struct TreeHasher(Hasher);

impl TreeHasher {
    pub const DIRECTORY: char = 'd';
    pub const LINK: char = 'l';

    /// The kind of a file.
    #[must_use]
    pub fn file(executable: bool) -> char {
        if executable { 'x' } else { 'f' }
    }

    /// `content` is the digest of a file's bytes or of a link's target, and for a directory that of nothing.
    pub fn add(&mut self, kind: char, path: &Path, content: Digest) {
        let name = path.as_os_str().as_encoded_bytes();
        self.0.update(format!("{kind} {} {content} ", name.len()).as_bytes());
        self.0.update(name);
    }

    #[must_use]
    pub fn finish(self) -> Digest {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directorys_digest_follows_content_and_execute_bit_only() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("script");
        fs::write(&file, "one").unwrap();
        let set = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        set(0o644);
        let first = digest_of_path(directory.path()).unwrap();
        set(0o600);
        assert_eq!(digest_of_path(directory.path()).unwrap(), first);
        set(0o755);
        assert_ne!(digest_of_path(directory.path()).unwrap(), first);
        set(0o644);
        fs::write(&file, "two").unwrap();
        assert_ne!(digest_of_path(directory.path()).unwrap(), first);
    }

    #[test]
    fn a_cached_file_of_the_right_length_and_another_content_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        let state = |length| CachedFile::of(&file, Digest::of(b"right"), length).unwrap();
        assert_eq!(state(Some(5)), CachedFile::Absent);
        fs::write(&file, "right").unwrap();
        assert_eq!(
            (state(Some(5)), state(None), state(Some(4))),
            (CachedFile::Sound, CachedFile::Sound, CachedFile::Damaged)
        );
        fs::write(&file, "wrong").unwrap();
        assert_eq!(state(Some(5)), CachedFile::Damaged);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(state(None), CachedFile::Damaged);
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
        nix::unistd::mkfifo(&directory.path().join("pipe"), mode).unwrap();
        let told = base::failure::render(&digest_of_path(directory.path()).unwrap_err());
        assert!(told.contains("pipe is neither a file"), "{told}");
    }
}
