//! The outputs that a build has written into a directory, so that the next build makes only those that have changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::progress::Progress;
use serde::{Deserialize, Serialize};

use crate::cache::Cache;

/// The outputs of one directory, by name.
#[derive(Debug)]
pub(super) struct OutputRecord {
    directory: PathBuf,
    file: PathBuf,
    outputs: BTreeMap<String, Output>,
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
        Ok(Self { directory, file, outputs: outputs.unwrap_or_default() })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The digest of the output `name`. `make` makes the output unless it is there and unchanged since it was made from
    /// `key`. It is hashed as the step `checksum-OUTPUT`.
    pub(super) fn made(
        &mut self,
        name: &str,
        output: &str,
        key: &serde_json::Value,
        progress: &Progress,
        make: impl FnOnce() -> Result<()>,
    ) -> Result<Digest> {
        let path = self.directory.join(name);
        if let Some(output) = self.outputs.get(name)
            && output.key == *key
            && output.is_untouched(&path)
        {
            return Ok(output.sha256);
        }
        self.outputs.remove(name);
        make()?;
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let mut step = progress.step(
            &format!("checksum-{output}"),
            format!("Hashing {name}"),
            Some(file.metadata()?.len()),
        );
        let (sha256, size) =
            Digest::of_reader(step.reader(&file)).with_context(|| format!("reading {}", path.display()))?;
        // The record must not describe a file that a power cut can take back.
        file.sync_all().with_context(|| format!("flushing {}", path.display()))?;
        step.done();
        let metadata = fs::metadata(&path)?;
        let (mtime, mtime_nsec, inode) = (metadata.mtime(), metadata.mtime_nsec(), metadata.ino());
        let output = Output { key: key.clone(), size, mtime, mtime_nsec, inode, sha256 };
        self.outputs.insert(name.to_owned(), output);
        self.write()?;
        Ok(sha256)
    }

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
