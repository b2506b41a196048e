//! Verifies a payload while it is read.

use std::io::{self, Read};

use base::digest::Hasher;
use base::failure::{Class, Failure};
use model::release::Payload;

/// The failure of a payload that differs from the manifest; `how` is the difference.
#[must_use]
pub fn damaged(payload: &Payload, source: &str, how: &str) -> Failure {
    Failure::new(Class::Verification, format!("{} from {source} is damaged: {how}", payload.path))
        .hint("Use another source, or write the medium again from a checked file; `installer verify` names every damaged payload of a medium.")
}

/// Passes a payload through and fails at its end unless length and digest are right. The reader gets bytes before they are
/// verified; only a regular end of the stream confirms them.
#[allow(missing_debug_implementations)]
pub struct VerifyingReader<R> {
    inner: R,
    /// None after the end.
    hasher: Option<Hasher>,
    payload: Payload,
    source: String,
    count: u64,
}

impl<R: Read> VerifyingReader<R> {
    /// Checks `inner` against `payload`; `source` names where it comes from.
    pub fn new(inner: R, payload: &Payload, source: impl Into<String>) -> Self {
        let hasher = Some(Hasher::default());
        Self { inner, hasher, payload: payload.clone(), source: source.into(), count: 0 }
    }

    fn end(&self, hasher: Hasher) -> io::Result<()> {
        let Payload { size, sha256, .. } = self.payload;
        let digest = hasher.finish();
        if self.count != size {
            return Err(self.damaged(&format!("{} bytes instead of {size}", self.count)));
        }
        if digest != sha256 {
            return Err(self.damaged(&format!("SHA-256 {digest} instead of {sha256}")));
        }
        Ok(())
    }

    fn damaged(&self, how: &str) -> io::Error {
        io::Error::other(damaged(&self.payload, &self.source, how))
    }
}

impl<R: Read> Read for VerifyingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer).map_err(|error| match error.kind() {
            // The medium is shorter than its file system says.
            io::ErrorKind::UnexpectedEof => self.damaged(&error.to_string()),
            _ => error,
        })?;
        self.count += count as u64;
        if count > 0 {
            if let Some(hasher) = &mut self.hasher {
                hasher.update(&buffer[..count]);
            }
            if self.count > self.payload.size {
                return Err(self.damaged(&format!("more than {} bytes", self.payload.size)));
            }
        } else if !buffer.is_empty()
            && let Some(hasher) = self.hasher.take()
        {
            self.end(hasher)?;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use model::release::Purpose;
    use testing::release::contents;

    /// A reader that gives at most so many bytes at once.
    struct SmallReads<'a>(&'a [u8], usize);

    impl Read for SmallReads<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let limit = buffer.len().min(self.1);
            self.0.read(&mut buffer[..limit])
        }
    }

    fn image() -> &'static (Payload, Vec<u8>) {
        contents().iter().find(|(payload, _)| payload.purpose == Purpose::Rootfs).unwrap()
    }

    fn read(inner: impl Read) -> io::Result<u64> {
        io::copy(&mut VerifyingReader::new(inner, &image().0, "the medium"), &mut io::sink())
    }

    #[test]
    fn a_payload_is_right_however_it_is_divided() {
        let (_, bytes) = image();
        for sip in [1, 7, 4096, usize::MAX] {
            assert_eq!(read(SmallReads(bytes, sip)).unwrap(), bytes.len() as u64, "{sip}");
        }
    }

    #[test]
    fn changed_longer_and_shorter_content_is_damaged() {
        let (_, bytes) = image();
        let flipped = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x80;
            bytes
        };
        let longer = [bytes.as_slice(), b"x"].concat();
        let shorter = bytes[..bytes.len() - 1].to_vec();
        for other in [flipped(0), flipped(bytes.len() - 1), longer, shorter] {
            let error = anyhow::Error::from(read(other.as_slice()).unwrap_err());
            assert_eq!(class_of(&error), Class::Verification, "{error:#}");
        }
    }
}
