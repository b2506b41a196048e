//! How a blob gets into a store: written beside its place, hashed on the way, then renamed into place.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use base::digest::Hasher;

use super::blob::Blob;
use super::store::Store;

/// A blob on its way into a store. Dropped before [`BlobWriter::finish`], it leaves nothing.
#[allow(missing_debug_implementations)]
pub struct BlobWriter {
    store: Store,
    file: tempfile::NamedTempFile,
    hasher: Hasher,
    size: u64,
}

impl Store {
    pub fn add(&self, bytes: &[u8]) -> Result<Blob> {
        let mut writer = self.blob_writer()?;
        writer.write_all(bytes).context("writing a blob")?;
        writer.finish()
    }

    /// Begins a blob whose content comes piece by piece.
    pub fn blob_writer(&self) -> Result<BlobWriter> {
        BlobWriter::new(self)
    }
}

impl BlobWriter {
    fn new(store: &Store) -> Result<Self> {
        let directory = store.root().join("blobs");
        let file = tempfile::NamedTempFile::new_in(&directory)
            .with_context(|| format!("making a file in {}", directory.display()))?;
        Ok(Self { store: store.clone(), file, hasher: Hasher::default(), size: 0 })
    }

    /// Puts the blob in its place. If the store has it already, that one is checked and kept.
    pub fn finish(self) -> Result<Blob> {
        let store = self.store.clone();
        self.loose()?.place(&store)
    }

    /// Ends the blob without a place in the store, for callers that need its digest first, or have to wait.
    pub(super) fn loose(self) -> Result<LooseBlob> {
        let blob = Blob { digest: self.hasher.finish(), size: self.size };
        let length = self.file.as_file().metadata().context("writing a blob")?.len();
        ensure!(length == blob.size, "{}: {length} bytes were written of {}", blob.digest, blob.size);
        Ok(LooseBlob { blob, path: self.file.into_temp_path() })
    }
}

/// A complete blob without a place in the store: a file beside the blobs. Dropped, it leaves nothing.
#[derive(Debug)]
pub(super) struct LooseBlob {
    blob: Blob,
    path: tempfile::TempPath,
}

impl LooseBlob {
    pub(super) fn blob(&self) -> Blob {
        self.blob
    }

    /// Where it is for now.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place. If the store has it already, that one is checked and kept.
    pub(super) fn place(self, store: &Store) -> Result<Blob> {
        let path = store.blob_path(self.blob.digest);
        if path.exists() && store.check(self.blob).is_ok() {
            return Ok(self.blob);
        }
        let placing = || format!("placing the blob {}", path.display());
        let file = File::open(&self.path).with_context(placing)?;
        file.set_permissions(fs::Permissions::from_mode(0o644)).with_context(placing)?;
        file.sync_all().with_context(placing)?;
        self.path.persist(&path).with_context(placing)?;
        Ok(self.blob)
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
