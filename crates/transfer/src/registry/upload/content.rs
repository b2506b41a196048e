//! The bytes of a blob that is being uploaded.

use std::fmt;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use anyhow::Result;

use super::request::UploadRequestError;
use crate::registry::rate::{RateLimitedReader, RateLimiter};
use base::digest::Digest;
use base::parallel::locked;
use formats::oci::Repository;

pub struct NewBlob<'a> {
    pub digest: Digest,
    /// In bytes.
    pub size: u64,
    /// Its bytes from the beginning. The reader must check them: it fails before its end if the digest is wrong.
    pub open: &'a dyn Fn() -> Result<Box<dyn Read + Send>>,
    /// Another repository of the same registry that may have the blob.
    pub elsewhere: Option<&'a Repository>,
}

impl fmt::Debug for NewBlob<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewBlob")
            .field("digest", &self.digest)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

pub(super) struct PieceReader {
    reader: RateLimitedReader<Box<dyn Read + Send>>,
    left: u64,
}

impl PieceReader {
    pub(super) fn open(
        blob: &NewBlob<'_>,
        limiter: Option<&RateLimiter>,
    ) -> Result<Self, UploadRequestError> {
        let reader = (blob.open)().map_err(UploadRequestError::Content)?;
        Ok(Self { reader: RateLimitedReader::new(reader, limiter.cloned()), left: blob.size })
    }

    /// The next piece, of `length` bytes unless it is the last. Fails at the last piece if the reader has more bytes.
    pub(super) fn next(&mut self, length: u64) -> Result<Vec<u8>, UploadRequestError> {
        let wanted = self.left.min(length);
        let content = |error: io::Error| UploadRequestError::Content(error.into());
        let mut piece = Vec::with_capacity(usize::try_from(wanted).unwrap_or_default());
        let count = (&mut self.reader).take(wanted).read_to_end(&mut piece).map_err(content)? as u64;
        self.left -= count;
        if count < wanted {
            return Err(content(io::ErrorKind::UnexpectedEof.into()));
        }
        if self.left == 0 && self.reader.read(&mut [0]).map_err(content)? > 0 {
            return Err(content(io::Error::other("the file is longer than expected")));
        }
        Ok(piece)
    }
}

/// Reads a blob as a whole and keeps the read error, since an HTTP client only reports that it could not send.
pub(super) struct BlobReader {
    reader: RateLimitedReader<Box<dyn Read + Send>>,
    failed: Arc<Mutex<Option<io::Error>>>,
}

#[derive(Clone, Default)]
pub(super) struct BlobReadError(Arc<Mutex<Option<io::Error>>>);

impl BlobReadError {
    pub(super) fn take(&self) -> Option<UploadRequestError> {
        let error = locked(&self.0).take();
        error.map(|error| UploadRequestError::Content(error.into()))
    }
}

impl BlobReader {
    pub(super) fn open(
        blob: &NewBlob<'_>,
        limiter: Option<&RateLimiter>,
        failed: &BlobReadError,
    ) -> Result<Self, UploadRequestError> {
        let reader = (blob.open)().map_err(UploadRequestError::Content)?;
        Ok(Self { reader: RateLimitedReader::new(reader, limiter.cloned()), failed: failed.0.clone() })
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer).map_err(|error| {
            let told = error.to_string();
            *locked(&self.failed) = Some(error);
            io::Error::other(told)
        })
    }
}
