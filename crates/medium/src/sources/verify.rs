//! Reading a payload to its end and knowing that it was the right one.

use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Read};

use base::digest::Hasher;
use base::failure::{Class, Failure};
use model::release::Payload;

/// The failure of a payload that is not what the manifest says; `how` is what was found instead.
#[must_use]
pub fn damaged(payload: &Payload, source: &str, how: &str) -> Failure {
    Failure::new(Class::Verification, format!("{} from {source} is damaged: {how}", payload.path))
        .hint("Use another source, or write the medium again from a checked file; `installer verify` names every damaged payload of a medium.")
}

/// Passes a payload through and fails at its end unless length and content are right. Bytes are seen by the
/// reader before they are known to be good; only the regular end of the stream says that they are.
#[allow(missing_debug_implementations)]
pub struct Verified<R> {
    inner: R,
    check: Option<ContentCheck>,
    payload: Payload,
    source: String,
    count: u64,
}

/// How the content is checked.
enum ContentCheck {
    /// Against the manifest.
    Digest(Hasher),
    /// Against what was read before, see [`Seen`](super::Seen).
    Again { hasher: DefaultHasher, known: u64 },
}

impl ContentCheck {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Digest(hasher) => hasher.update(bytes),
            Self::Again { hasher, .. } => hasher.write(bytes),
        }
    }

    /// What is wrong with the content, if anything is.
    fn finish(self, payload: &Payload) -> Option<String> {
        match self {
            Self::Digest(hasher) => {
                let digest = hasher.finish();
                let wrong = digest != payload.sha256;
                wrong.then(|| format!("SHA-256 {digest} instead of {}", payload.sha256))
            }
            Self::Again { hasher, known } => {
                (hasher.finish() != known).then(|| "other bytes than when it was checked before".into())
            }
        }
    }
}

impl<R: Read> Verified<R> {
    /// Checks `inner` against `payload`; `source` names where it comes from.
    pub fn new(inner: R, payload: &Payload, source: impl Into<String>) -> Self {
        Self::with(ContentCheck::Digest(Hasher::default()), inner, payload, source.into())
    }

    /// Checks that `inner` gives the bytes for which `hasher` came to `known` before.
    pub(super) fn again(
        inner: R,
        payload: &Payload,
        source: String,
        hasher: DefaultHasher,
        known: u64,
    ) -> Self {
        Self::with(ContentCheck::Again { hasher, known }, inner, payload, source)
    }

    fn with(check: ContentCheck, inner: R, payload: &Payload, source: String) -> Self {
        Self { inner, check: Some(check), payload: payload.clone(), source, count: 0 }
    }

    fn end(&self, check: ContentCheck) -> io::Result<()> {
        let size = self.payload.size;
        let how = match self.count == size {
            true => check.finish(&self.payload),
            false => Some(format!("{} bytes instead of {size}", self.count)),
        };
        how.map_or(Ok(()), |how| Err(io::Error::other(damaged(&self.payload, &self.source, &how))))
    }
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer).map_err(|error| match error.kind() {
            // The medium is shorter than its file system says.
            io::ErrorKind::UnexpectedEof => {
                io::Error::other(damaged(&self.payload, &self.source, &error.to_string()))
            }
            _ => error,
        })?;
        self.count += count as u64;
        if count > 0 {
            if let Some(check) = &mut self.check {
                check.update(&buffer[..count]);
            }
            if self.count > self.payload.size {
                let how = format!("more than {} bytes", self.payload.size);
                return Err(io::Error::other(damaged(&self.payload, &self.source, &how)));
            }
        } else if !buffer.is_empty()
            && let Some(check) = self.check.take()
        {
            self.end(check)?;
        }
        Ok(count)
    }
}
