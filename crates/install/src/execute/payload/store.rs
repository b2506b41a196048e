//! The persistent partition: where containerd's store is on it, and files that appear only when they are complete.
//!
//! The partition is `/var` of the node. Names and modes are those that containerd itself uses (its content store and its metadata
//! plugin), so that it finds everything where it would have put it.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::direct::DirectFile;
use base::containerd;
use base::digest::Digest;
use base::failure::{Class, Classify};
use base::files::removed;
use model::release::Containerd;

/// The number of blobs that are downloaded in parallel from servers, and of files that are read back in parallel. More do not
/// make a busy link faster, and registries limit them.
pub(crate) const PARALLEL_FILES: usize = 5;
/// containerd's directories below its root, parents first, with their modes.
const DIRECTORIES: [(&str, u32); 5] = [
    ("io.containerd.content.v1.content", 0o755),
    ("io.containerd.content.v1.content/blobs", 0o755),
    (containerd::BLOBS, 0o755),
    ("io.containerd.content.v1.content/ingest", 0o755),
    ("io.containerd.metadata.v1.bolt", 0o711),
];

/// Where files are until they are complete, below containerd's root. Not in containerd's own `ingest`, whose entries it expects
/// to be its own.
const UNFINISHED: &str = "nqrust-unfinished";

/// The mode that containerd gives a blob when it commits it: read-only.
const BLOB_MODE: u32 = 0o444;

#[derive(Debug)]
pub(crate) struct Store {
    root: PathBuf,
}

impl Store {
    /// Makes the directories of the store below `partition`, or takes those that exist, without the unfinished files of an
    /// earlier run.
    pub(crate) fn prepare(partition: &Path, containerd: &Containerd) -> Result<Self> {
        let mut root = partition.to_owned();
        for part in containerd.on_partition().split('/') {
            root.push(part);
            directory(&root, 0o755)?;
        }
        directory(&root, 0o711)?;
        for (path, mode) in DIRECTORIES {
            directory(&root.join(path), mode)?;
        }
        let store = Self { root };
        store.clear()?;
        directory(&store.root.join(UNFINISHED), 0o700)?;
        Ok(store)
    }

    pub(crate) fn at(partition: &Path, containerd: &Containerd) -> Self {
        Self { root: partition.join(containerd.on_partition()) }
    }

    pub(crate) fn metadata(&self) -> PathBuf {
        self.root.join(containerd::METADATA)
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join(containerd::BLOBS).join(digest.to_string())
    }

    pub(crate) fn begin_blob(&self, digest: &Digest) -> Result<UnfinishedFile> {
        UnfinishedFile::begin(
            self.root.join(UNFINISHED).join(digest.to_string()),
            self.blob(digest),
            BLOB_MODE,
        )
    }

    pub(crate) fn begin_metadata(&self) -> Result<UnfinishedFile> {
        UnfinishedFile::begin(self.root.join(UNFINISHED).join("meta.db"), self.metadata(), 0o644)
    }

    /// Removes everything that containerd does not know.
    pub(crate) fn clear(&self) -> Result<()> {
        let path = self.root.join(UNFINISHED);
        removed(fs::remove_dir_all(&path)).class(Class::DiskIo, || format!("removing {}", path.display()))
    }
}

/// Makes one directory, or takes the one that exists, with exactly `mode`.
pub(crate) fn directory(path: &Path, mode: u32) -> Result<()> {
    let made = match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::set_permissions(path, Permissions::from_mode(mode)),
    };
    made.class(Class::DiskIo, || format!("making the directory {}", path.display()))
}

/// A file that gets its name when it is complete. Whoever finds it under that name finds all of it, however this process ends; to
/// survive a power cut it needs a flush of the file system after [`UnfinishedFile::finish`].
#[derive(Debug)]
pub(crate) struct UnfinishedFile {
    file: DirectFile,
    path: PathBuf,
    finished: PathBuf,
    mode: u32,
}

impl UnfinishedFile {
    fn begin(path: PathBuf, finished: PathBuf, mode: u32) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.class(Class::DiskIo, || format!("making {}", path.display()))?;
        Ok(Self { file: DirectFile::new(file), path, finished, mode })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes).class(Class::DiskIo, || format!("writing {}", self.finished.display()))
    }

    /// Gives the file its mode and its name.
    pub(crate) fn finish(self) -> Result<()> {
        let done = self.file.file().set_permissions(Permissions::from_mode(self.mode));
        let done = done.and_then(|()| fs::rename(&self.path, &self.finished));
        done.class(Class::DiskIo, || format!("finishing {}", self.finished.display()))
    }
}

impl Drop for UnfinishedFile {
    /// Removes an incomplete file. After [`UnfinishedFile::finish`] there is none.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
