//! Reading a payload to its end and knowing that it was the right one.

use std::io::{self, Read};

use crate::digest::{Digest, Hasher};
use crate::failure::{Class, Failure};
use crate::release::Payload;

/// The failure of a payload that is not what the manifest says; `how` is what was found instead.
#[must_use]
pub fn damaged(payload: &Payload, source: &str, how: &str) -> Failure {
    Failure::new(Class::Verification, format!("{} from {source} is damaged: {how}", payload.path))
        .hint("Write the medium again from a checked file, or use another one; `installer verify` names every damaged payload.")
}

/// Passes a payload through and fails at its end unless length and digest are right. Bytes are seen by the
/// reader before they are known to be good; only the regular end of the stream says that they are.
#[allow(missing_debug_implementations)]
pub struct Verified<R> {
    inner: R,
    hasher: Option<Hasher>,
    payload: Payload,
    source: String,
    count: u64,
}

impl<R: Read> Verified<R> {
    /// Checks `inner` against `payload`; `source` names where it comes from.
    pub fn new(inner: R, payload: &Payload, source: impl Into<String>) -> Self {
        Self {
            inner,
            hasher: Some(Hasher::default()),
            payload: payload.clone(),
            source: source.into(),
            count: 0,
        }
    }

    fn check(&self, digest: Digest) -> io::Result<()> {
        let Payload { size, sha256, .. } = self.payload;
        let how = if self.count != size {
            format!("{} bytes instead of {size}", self.count)
        } else if digest != sha256 {
            format!("SHA-256 {digest} instead of {sha256}")
        } else {
            return Ok(());
        };
        Err(io::Error::other(damaged(&self.payload, &self.source, &how)))
    }
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count += count as u64;
        if count > 0 {
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&buffer[..count]);
            }
            if self.count > self.payload.size {
                let how = format!("more than {} bytes", self.payload.size);
                return Err(io::Error::other(damaged(&self.payload, &self.source, &how)));
            }
        } else if !buffer.is_empty()
            && let Some(hasher) = self.hasher.take()
        {
            self.check(hasher.finish())?;
        }
        Ok(count)
    }
}
