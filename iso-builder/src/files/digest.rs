//! The digests of files of the host, and of directories with everything in them. The inputs of a build are identified
//! by these.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use base::digest::{Digest, Hasher};
use base::failure::{Class, Failure};
use walkdir::WalkDir;

/// Digest and length in bytes.
pub fn digest_of_file(path: &Path) -> Result<(Digest, u64)> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    Digest::of_reader(file).with_context(|| format!("reading {}", path.display()))
}

/// The digest of a file's content, or of a directory: names, kinds, contents, link targets and the user's execute
/// bit; not owners, times or the other mode bits, which differ between checkouts of the same thing.
pub fn digest_of_path(path: &Path) -> Result<Digest> {
    if !path.is_dir() {
        return Ok(digest_of_file(path)?.0);
    }
    let mut hasher = Hasher::default();
    for entry in WalkDir::new(path).min_depth(1).sort_by_file_name() {
        let entry = entry.with_context(|| format!("reading {}", path.display()))?;
        let name = entry.path().strip_prefix(path)?.as_os_str().as_encoded_bytes();
        let (kind, content) = if entry.file_type().is_dir() {
            ('d', Digest::of(b""))
        } else if entry.file_type().is_symlink() {
            ('l', Digest::of(fs::read_link(entry.path())?.as_os_str().as_encoded_bytes()))
        } else if !entry.file_type().is_file() {
            // Opening a pipe would wait for ever, and reading /dev/zero would never end.
            let what = format!("{} is neither a file, a directory nor a link", entry.path().display());
            return Err(Failure::new(Class::Invalid, what).hint("Remove it.").into());
        } else {
            let executable = entry.metadata()?.permissions().mode() & 0o100 != 0;
            (if executable { 'x' } else { 'f' }, digest_of_file(entry.path())?.0)
        };
        hasher.update(format!("{kind} {} {content} ", name.len()).as_bytes());
        hasher.update(name);
    }
    Ok(hasher.finish())
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
    fn a_pipe_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o600);
        nix::unistd::mkfifo(&directory.path().join("pipe"), mode).unwrap();
        let told = base::failure::render(&digest_of_path(directory.path()).unwrap_err());
        assert!(told.contains("pipe is neither a file"), "{told}");
    }
}
