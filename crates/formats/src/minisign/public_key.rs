//! The half of a key that verifies.

use std::fmt;

use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ID_BYTES, KEY_BYTES, KeyId, PLAIN, UNTRUSTED, decoded, encoded, field, line};

/// An Ed25519 public key and its id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey {
    pub(super) id: KeyId,
    pub(super) bytes: [u8; KEY_BYTES],
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParsePublicKeyError {
    #[error("it is a secret key; the file beside it that ends in .pub has the public one")]
    Secret,
    #[error(
        "it is not a public key of minisign: two lines, the second of which has 56 characters and begins with RW"
    )]
    Layout,
}

impl PublicKey {
    /// Reads the two lines of a file, or the second of them alone.
    pub fn parse(text: &str) -> Result<Self, ParsePublicKeyError> {
        let mut lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with(UNTRUSTED.trim()));
        let (Some(key), None) = (lines.next(), lines.next()) else { return Err(ParsePublicKeyError::Layout) };
        let Some(bytes) = decoded::<{ 2 + ID_BYTES + KEY_BYTES }>(key) else {
            return Err(match decoded::<158>(key) {
                Some(_) => ParsePublicKeyError::Secret,
                None => ParsePublicKeyError::Layout,
            });
        };
        if field(&bytes, 0) != PLAIN {
            return Err(ParsePublicKeyError::Layout);
        }
        Ok(Self { id: KeyId(field(&bytes, 2)), bytes: field(&bytes, 2 + ID_BYTES) })
    }

    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The file with this key: two lines.
    #[must_use]
    pub fn to_text(&self, comment: &str) -> String {
        format!("{UNTRUSTED}{}\n{self}\n", line(comment))
    }

    /// Whether `signature` is this key's over `message`.
    pub(crate) fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.bytes).verify(message, signature).is_ok()
    }
}

/// The line of a file that has the key.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoded(&[&PLAIN[..], &self.id.0, &self.bytes].concat()))
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id)
    }
}
