//! The outputs that a build has written into a directory, so that the next build makes only those that have changed. Several can be
//! made at the same time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{io, thread};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::parallel::locked;
use base::progress::Progress;
use serde::{Deserialize, Serialize};

use super::output::OutputDirectory;
use crate::cache::{Cache, StepUse};

/// The outputs of one directory, by name.
#[derive(Debug)]
pub(super) struct OutputRecord<'a> {
    directory: &'a OutputDirectory,
    file: PathBuf,
    outputs: Mutex<BTreeMap<String, Output>>,
    uses: Mutex<Vec<StepUse>>,
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

impl<'a> OutputRecord<'a> {
    /// The record of `directory`; empty if there is none.
    pub(super) fn open(cache: &Cache, directory: &'a OutputDirectory) -> Result<Self> {
        let path = directory.path();
        let path = path.canonicalize().with_context(|| format!("resolving {}", path.display()))?;
        let name = Digest::of(path.as_os_str().as_encoded_bytes());
        let file = cache.records().join(format!("{name}.json"));
        let outputs = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(Self { directory, file, outputs: Mutex::new(outputs.unwrap_or_default()), uses: Mutex::default() })
    }

    /// The outputs that were asked for, in the order of their ends.
    pub(super) fn uses(&self) -> Vec<StepUse> {
        locked(&self.uses).clone()
    }

    /// The path of the output `name`, where it is when the build is finished.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The digest of the output `name`, if it is there and unchanged since it was made from `key`.
    pub(super) fn is_current(&self, name: &str, key: &serde_json::Value) -> Option<Digest> {
        let outputs = locked(&self.outputs);
        let known =
            outputs.get(name).filter(|known| known.key == *key && known.is_untouched(&self.path(name)));
        known.map(|known| known.sha256)
    }

    /// The digest of the output `name`. `make` makes the output at the path that it is given, unless it is there and unchanged since
    /// it was made from `key`; it returns the digest if it has made a copy of a file with a known one. Otherwise the output is hashed,
    /// as the step `checksum-OUTPUT`.
    pub(super) fn made(
        &self,
        name: &str,
        output: &str,
        key: &serde_json::Value,
        progress: &Progress,
        make: impl FnOnce(&Path) -> Result<Option<Digest>>,
    ) -> Result<Digest> {
        let begun = Instant::now();
        let used = |cached, size| {
            let seconds = begun.elapsed().as_secs_f64();
            locked(&self.uses).push(StepUse { step: output.to_owned(), cached, origin: None, seconds, size });
        };
        if let Some(known) = self.is_current(name, key) {
            used(true, fs::metadata(self.path(name))?.len());
            return Ok(known);
        }
        locked(&self.outputs).remove(name);
        let (path, shown) = (self.directory.unfinished(name), self.path(name));
        let known = make(&path)?;
        let file = File::open(&path).with_context(|| format!("opening {}", shown.display()))?;
        let hash = || {
            let mut step = progress.step(
                &format!("checksum-{output}"),
                format!("Hashing {name}"),
                Some(file.metadata()?.len()),
            );
            let hashed = Digest::of_reader(step.reader(&file));
            let (digest, _) = hashed.with_context(|| format!("reading {}", shown.display()))?;
            step.done();
            Ok(digest)
        };
        // The record must not describe a file that a power cut can take back. The disk writes while the processor hashes.
        let sha256 = thread::scope(|scope| -> Result<Digest> {
            let flush = scope.spawn(|| file.sync_all());
            let sha256 = known.map_or_else(hash, Ok);
            let flushed = flush.join().unwrap_or_else(|_| Err(io::Error::other("the flush ended early")));
            flushed.with_context(|| format!("flushing {}", shown.display()))?;
            sha256
        })?;
        // A rename leaves all of this as it is.
        let metadata = fs::metadata(&path)?;
        let (mtime, mtime_nsec, inode) = (metadata.mtime(), metadata.mtime_nsec(), metadata.ino());
        let output = Output { key: key.clone(), size: metadata.len(), mtime, mtime_nsec, inode, sha256 };
        locked(&self.outputs).insert(name.to_owned(), output);
        used(false, metadata.len());
        Ok(sha256)
    }

    /// The record, to be written when the outputs have their names.
    pub(super) fn finish(self) -> FinishedRecord {
        let outputs = self.outputs.into_inner().unwrap_or_else(PoisonError::into_inner);
        FinishedRecord { file: self.file, outputs }
    }
}

/// The record of a directory whose outputs are made.
#[derive(Debug)]
pub(super) struct FinishedRecord {
    file: PathBuf,
    outputs: BTreeMap<String, Output>,
}

impl FinishedRecord {
    pub(super) fn write(&self) -> Result<()> {
        files::write_atomically(&self.file, &serde_json::to_vec_pretty(&self.outputs)?, 0o644)
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
