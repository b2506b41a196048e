//! SHA-256 digests and readers that compute them on the way.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest. Written as 64 lower-case hexadecimal digits; read with or without the prefix `sha256:`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a SHA-256 digest (64 hexadecimal digits)")]
pub struct ParseDigestError(String);

impl Digest {
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Digest and length of the rest of `reader`.
    pub fn of_reader(reader: impl Read) -> io::Result<(Self, u64)> {
        let mut hashing = HashingReader::new(reader);
        let length = io::copy(&mut hashing, &mut io::sink())?;
        Ok((hashing.digest(), length))
    }

    /// The form of the OCI specifications, `sha256:…`.
    #[must_use]
    pub fn oci(&self) -> String {
        format!("sha256:{self}")
    }

    /// The first `N` bytes, for a short identifier derived from the digest.
    #[must_use]
    pub fn first_bytes<const N: usize>(&self) -> [u8; N] {
        const { assert!(N <= 32, "a SHA-256 digest has 32 bytes") };
        std::array::from_fn(|at| self.0[at])
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let mut bytes = [0; 32];
        match hex::decode_to_slice(digits, &mut bytes) {
            Ok(()) => Ok(Self(bytes)),
            Err(_) => Err(ParseDigestError(text.to_owned())),
        }
    }
}

impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Passes bytes through and hashes them.
#[allow(missing_debug_implementations)]
pub struct HashingReader<R> {
    inner: R,
    hasher: Sha256,
}

impl<R: Read> HashingReader<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, hasher: Sha256::new() }
    }

    /// The digest of the bytes read so far.
    pub fn digest(self) -> Digest {
        Digest(self.hasher.finalize().into())
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

/// Hashes data piece by piece, for callers that have no reader.
#[derive(Clone, Default)]
#[allow(missing_debug_implementations)]
pub struct Hasher(Sha256);

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn reads_both_spellings_and_writes_bare_hexadecimal() {
        let bare: Digest = EMPTY.parse().unwrap();
        let prefixed: Digest = format!("sha256:{EMPTY}").parse().unwrap();
        assert_eq!(bare, prefixed);
        assert_eq!(bare, Digest::of(b""));
        assert_eq!(bare.to_string(), EMPTY);
    }

    #[test]
    fn refuses_what_is_not_a_digest() {
        for text in ["", "sha256:", "e3b0", &EMPTY[1..], "sha512:00"] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
