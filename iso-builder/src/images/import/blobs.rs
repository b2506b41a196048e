//! How the blobs of layouts and archives get into the store.

use std::io::{self, Read, Write};

use anyhow::{Context, Result};
use base::failure::{Class, Failure};
use formats::oci::Descriptor;

use super::super::blob::Blob;
use super::super::blob_writer::LooseBlob;
use super::super::store::Store;

/// How many bytes are read at once. Compressed layers depend on it: zstd gets pieces of this size.
pub(super) const PIECE_BYTES: usize = 128 << 10;

pub(super) trait BlobSource {
    /// Puts a blob into the store after comparing it with its descriptor.
    fn place(&mut self, descriptor: &Descriptor) -> Result<Blob>;
}

pub(super) fn compare(descriptor: &Descriptor, found: Blob) -> Result<()> {
    if (found.digest, found.size) == (descriptor.digest, descriptor.size) {
        return Ok(());
    }
    let why = if found.digest == descriptor.digest {
        format!("it has {} bytes and was announced with {}", found.size, descriptor.size)
    } else {
        format!("its digest is {}", found.digest.oci())
    };
    Err(Failure::new(Class::Verification, why).into())
}

/// Reads until `buffer` is full or the end is reached.
pub(super) fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Copies a blob to a file beside the blobs of `store`.
pub(super) fn copy(mut content: impl Read, store: &Store) -> Result<LooseBlob> {
    let mut writer = store.blob_writer()?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match fill(&mut content, &mut piece)? {
            0 => return writer.loose(),
            count => writer.write_all(&piece[..count]).context("writing a blob")?,
        }
    }
}
