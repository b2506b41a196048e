//! Blobs, and how one comes into a store: written beside its place, hashed on the way, then put there whole.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use installer::digest::{Digest, Hasher};
use serde::{Deserialize, Serialize};

use super::store::Store;

/// A blob: what it is called and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Blob {
    /// SHA-256 of the content.
    pub digest: Digest,
    /// Length in bytes.
    pub size: u64,
}

/// A blob on its way into a store. Dropped before [`BlobWriter::finish`], it leaves nothing.
#[allow(missing_debug_implementations)]
pub struct BlobWriter {
    store: Store,
    file: tempfile::NamedTempFile,
    hasher: Hasher,
    size: u64,
}

impl BlobWriter {
    /// A blob that goes into `store`.
    pub(super) fn new(store: &Store) -> Result<Self> {
        let directory = store.root().join("blobs");
        let file = tempfile::NamedTempFile::new_in(&directory)
            .with_context(|| format!("making a file in {}", directory.display()))?;
        Ok(Self { store: store.clone(), file, hasher: Hasher::default(), size: 0 })
    }

    /// Puts the blob in its place. Where the store has it already, that one is checked and kept.
    pub fn finish(self) -> Result<Blob> {
        let blob = Blob { digest: self.hasher.finish(), size: self.size };
        let path = self.store.blob_path(blob.digest);
        if path.exists() && self.store.check(blob).is_ok() {
            return Ok(blob);
        }
        let placing = || format!("placing the blob {}", path.display());
        let file = self.file.as_file();
        file.set_permissions(fs::Permissions::from_mode(0o644)).with_context(placing)?;
        file.sync_all().with_context(placing)?;
        let length = file.metadata().with_context(placing)?.len();
        ensure!(length == blob.size, "{}: {length} bytes were written of {}", path.display(), blob.size);
        self.file.persist(&path).with_context(placing)?;
        Ok(blob)
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hasher.update(bytes.get(..count).unwrap_or_default());
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
