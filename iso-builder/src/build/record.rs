//! The outputs that a build has written into a directory, so that the next build makes only those that have changed. Several can be
//! made at the same time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{io, thread};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::parallel::locked;
use base::progress::Progress;
use serde::{Deserialize, Serialize};

use crate::cache::Cache;

/// The outputs of one directory, by name.
#[derive(Debug)]
pub(super) struct OutputRecord {
    directory: PathBuf,
    file: PathBuf,
    outputs: Mutex<BTreeMap<String, Output>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Output {
    key: serde_json::Value,
    size: u64,
    mtime: i64,
    mtime_nsec: i64,
    inode: u64,
    sha256: Digest,
}

impl OutputRecord {
    /// The record of `directory`; empty if there is none.
    pub(super) fn open(cache: &Cache, directory: &Path) -> Result<Self> {
        let directory =
            directory.canonicalize().with_context(|| format!("resolving {}", directory.display()))?;
        let name = Digest::of(directory.as_os_str().as_encoded_bytes());
        let file = cache.records().join(format!("{name}.json"));
        let outputs = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(Self { directory, file, outputs: Mutex::new(outputs.unwrap_or_default()) })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The digest of the output `name`. `make` makes the output unless it is there and unchanged since it was made from
    /// `key`; it returns the digest if it has made a copy of a file with a known one. Otherwise the output is hashed, as the step
    /// `checksum-OUTPUT`.
    pub(super) fn made(
        &self,
        name: &str,
        output: &str,
        key: &serde_json::Value,
        progress: &Progress,
        make: impl FnOnce() -> Result<Option<Digest>>,
    ) -> Result<Digest> {
        let path = self.directory.join(name);
        if let Some(output) = locked(&self.outputs).get(name)
            && output.key == *key
            && output.is_untouched(&path)
        {
            return Ok(output.sha256);
        }
        locked(&self.outputs).remove(name);
        let known = make()?;
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let hash = || {
            let mut step = progress.step(
                &format!("checksum-{output}"),
                format!("Hashing {name}"),
                Some(file.metadata()?.len()),
            );
            let hashed = Digest::of_reader(step.reader(&file));
            let (digest, _) = hashed.with_context(|| format!("reading {}", path.display()))?;
            step.done();
            Ok(digest)
        };
        // The record must not describe a file that a power cut can take back. The disk writes while the processor hashes.
        let sha256 = thread::scope(|scope| -> Result<Digest> {
            let flush = scope.spawn(|| file.sync_all());
            let sha256 = known.map_or_else(hash, Ok);
            let flushed = flush.join().unwrap_or_else(|_| Err(io::Error::other("the flush ended early")));
            flushed.with_context(|| format!("flushing {}", path.display()))?;
            sha256
        })?;
        let metadata = fs::metadata(&path)?;
        let (mtime, mtime_nsec, inode) = (metadata.mtime(), metadata.mtime_nsec(), metadata.ino());
        let output = Output { key: key.clone(), size: metadata.len(), mtime, mtime_nsec, inode, sha256 };
        locked(&self.outputs).insert(name.to_owned(), output);
        self.write()?;
        Ok(sha256)
    }

    pub(super) fn write(&self) -> Result<()> {
        // Held until the file is there, so that an older list never replaces a newer one.
        let outputs = locked(&self.outputs);
        files::write_atomically(&self.file, &serde_json::to_vec_pretty(&*outputs)?, 0o644)
    }
}

impl Output {
    fn is_untouched(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|metadata| {
            (metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino())
                == (self.size, self.mtime, self.mtime_nsec, self.inode)
        })
    }
}
