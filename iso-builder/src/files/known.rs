//! What is known of files of the host from before, so that those that have not changed are not read again.
//!
//! A file has not changed if its device, inode, size and the times of its last write and of its last change of any kind are
//! the same (stat(2)): the kernel sets the last of these, and no program can set it back. A file that was changed a moment ago could change
//! again within one tick of the clock, so it is read each time until it has settled.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files::{read_at_most, write_atomically};
use base::parallel::locked;
use serde::{Deserialize, Serialize};

use super::digest::{digest_of_opened, digest_of_path_by};

/// Files of less bytes are read each time.
const SIZE_MIN: u64 = 1 << 20;
/// How long ago the last change of a file has to be.
const SETTLED: Duration = Duration::from_secs(2);
/// How many files are remembered, those that were used last.
const FILES_MAX: usize = 1000;
const BYTES_MAX: u64 = 4 << 20;

/// Files that were read before. What is new is written when this is dropped.
#[derive(Debug)]
pub struct KnownFiles {
    file: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    files: BTreeMap<FileIdentity, KnownFile>,
    changed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct FileIdentity {
    device: u64,
    inode: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileState {
    /// In bytes.
    size: u64,
    /// Of the last write, since 1970 in nanoseconds.
    modified: i64,
    /// Of the last change of content, name, owner or mode.
    changed: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnownFile {
    #[serde(flatten)]
    identity: FileIdentity,
    #[serde(flatten)]
    state: FileState,
    /// When this was used last, in seconds since 1970.
    used: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<Digest>,
    /// What the program told as its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<String>,
}

impl FileState {
    fn of(metadata: &Metadata) -> (FileIdentity, Self) {
        let time = |seconds: i64, nanoseconds: i64| {
            seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
        };
        let state = Self {
            size: metadata.len(),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            changed: time(metadata.ctime(), metadata.ctime_nsec()),
        };
        (FileIdentity { device: metadata.dev(), inode: metadata.ino() }, state)
    }

    fn has_settled(self) -> bool {
        let now = since_1970().as_nanos();
        i64::try_from(now.saturating_sub(SETTLED.as_nanos())).is_ok_and(|limit| self.changed < limit)
    }
}

impl KnownFiles {
    /// Those that `file` lists, which may be absent. What cannot be read is not known.
    #[must_use]
    pub fn open(file: &Path) -> Self {
        let read = || serde_json::from_slice::<Vec<KnownFile>>(&read_at_most(file, BYTES_MAX).ok()?).ok();
        let files = read().unwrap_or_default().into_iter().map(|known| (known.identity, known)).collect();
        Self { file: file.to_owned(), known: Mutex::new(Known { files, changed: false }) }
    }

    /// The SHA-256 of a file.
    pub fn digest_of_file(&self, path: &Path) -> Result<Digest> {
        let what = || format!("reading {}", path.display());
        let file = File::open(path).with_context(what)?;
        let (identity, state) = FileState::of(&file.metadata().with_context(what)?);
        if let Some(digest) = self.known(identity, state, |known| known.sha256) {
            return Ok(digest);
        }
        let (digest, _) = digest_of_opened(&file, path)?;
        let unchanged = FileState::of(&file.metadata().with_context(what)?) == (identity, state);
        if unchanged && state.size >= SIZE_MIN {
            self.remember(identity, state, |known| known.sha256 = Some(digest));
        }
        Ok(digest)
    }

    /// The same as [`digest_of_path`](super::digest_of_path).
    pub fn digest_of_path(&self, path: &Path) -> Result<Digest> {
        digest_of_path_by(path, &|file| self.digest_of_file(file))
    }

    /// What the program at `path` tells as its version; `ask` asks it.
    pub fn version(&self, path: &Path, ask: impl FnOnce() -> Option<String>) -> Option<String> {
        let (identity, state) = FileState::of(&path.metadata().ok()?);
        if let Some(version) = self.known(identity, state, |known| known.version.clone()) {
            return Some(version);
        }
        let version = ask()?;
        self.remember(identity, state, |known| known.version = Some(version.clone()));
        Some(version)
    }

    fn known<T>(
        &self,
        identity: FileIdentity,
        state: FileState,
        get: impl FnOnce(&KnownFile) -> Option<T>,
    ) -> Option<T> {
        let mut known = locked(&self.known);
        let file = known.files.get_mut(&identity).filter(|known| known.state == state)?;
        let found = get(file)?;
        let now = since_1970().as_secs();
        // Once a day is enough to tell what is used.
        if now.saturating_sub(file.used) > 24 * 60 * 60 {
            file.used = now;
            known.changed = true;
        }
        Some(found)
    }

    fn remember(&self, identity: FileIdentity, state: FileState, set: impl FnOnce(&mut KnownFile)) {
        if !state.has_settled() {
            return;
        }
        let mut known = locked(&self.known);
        let new = KnownFile { identity, state, used: since_1970().as_secs(), sha256: None, version: None };
        let file = known.files.entry(identity).or_insert_with(|| new.clone());
        if file.state != state {
            *file = new;
        }
        set(file);
        known.changed = true;
    }
}

impl Drop for KnownFiles {
    fn drop(&mut self) {
        let known = locked(&self.known);
        if known.changed {
            let mut files: Vec<_> = known.files.values().collect();
            files.sort_by_key(|file| std::cmp::Reverse(file.used));
            files.truncate(FILES_MAX);
            // A cache that cannot be written to can still be read.
            let _ = serde_json::to_vec(&files).map(|bytes| write_atomically(&self.file, &bytes, 0o644));
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread::sleep;

    use super::*;

    /// What the list at `file` has for the file at `path`.
    fn listed(file: &Path, path: &Path) -> Option<Digest> {
        let (identity, state) = FileState::of(&path.metadata().unwrap());
        KnownFiles::open(file).known(identity, state, |known| known.sha256)
    }

    #[test]
    fn a_settled_file_is_known_until_it_changes_even_with_its_old_size_and_time() {
        let directory = tempfile::tempdir().unwrap();
        let (list, path) = (directory.path().join("known.json"), directory.path().join("file"));
        fs::write(&path, vec![1; 2 << 20]).unwrap();
        let digest = || KnownFiles::open(&list).digest_of_file(&path).unwrap();
        let first = Digest::of(&vec![1; 2 << 20]);
        assert_eq!(digest(), first);
        assert_eq!(listed(&list, &path), None, "it could still change within a tick");
        sleep(SETTLED + Duration::from_millis(100));
        assert_eq!(digest(), first);
        assert_eq!(listed(&list, &path), Some(first));
        // The list is believed as long as the state of the file is the one in it.
        let other = Digest::of(b"other").to_string();
        let text = fs::read_to_string(&list).unwrap().replace(&first.to_string(), &other);
        fs::write(&list, text).unwrap();
        assert_eq!(digest().to_string(), other);
        let time = path.metadata().unwrap().modified().unwrap();
        fs::write(&path, vec![2; 2 << 20]).unwrap();
        File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
        assert_eq!(digest(), Digest::of(&vec![2; 2 << 20]));
        assert_eq!(listed(&list, &path), None);
        fs::write(&list, "{").unwrap();
        assert_eq!(digest(), Digest::of(&vec![2; 2 << 20]));
    }

    #[test]
    fn a_program_is_asked_for_its_version_once() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("known.json");
        let version = |text: Option<&str>| {
            KnownFiles::open(&list).version(Path::new("/bin/sh"), || text.map(str::to_owned))
        };
        assert_eq!(version(None), None);
        assert_eq!(version(Some("1.0")).as_deref(), Some("1.0"));
        assert_eq!(version(Some("2.0")).as_deref(), Some("1.0"));
        let absent = directory.path().join("absent");
        assert_eq!(KnownFiles::open(&list).version(&absent, || Some("1.0".to_owned())), None);
    }

    #[test]
    fn a_directory_has_the_same_digest_as_without_what_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("a")).unwrap();
        fs::write(tree.join("a/b"), vec![0; 2 << 20]).unwrap();
        let known = KnownFiles::open(&directory.path().join("known.json"));
        assert_eq!(known.digest_of_path(&tree).unwrap(), crate::files::digest_of_path(&tree).unwrap());
    }
}
