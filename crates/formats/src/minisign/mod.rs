//! Keys and signatures of minisign: Ed25519 over the BLAKE2b-512 of a file, with a comment that is signed too.
//!
//! Its own program verifies ours, and ours its. Sources: <https://jedisct1.github.io/minisign/> for the layouts, and
//! `crypto_pwhash_scryptsalsa208sha256` of libsodium for how its two limits become the parameters of scrypt. Signing is
//! deterministic (RFC 8032): the same key, bytes and comment give the same signature.

mod public_key;
mod secret_key;
mod signature;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blake2::{Blake2b512, Digest as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use public_key::{ParsePublicKeyError, PublicKey};
pub use secret_key::{KeyDerivation, ParseSecretKeyError, SecretKey};
pub use signature::{ParseSignatureError, Signature, SignatureError, parse_signatures};

/// Length of an Ed25519 signature in bytes.
pub const SIGNATURE_BYTES: usize = 64;
/// Length of an Ed25519 public key in bytes.
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 8;
/// What a file begins with; its text is not signed.
const UNTRUSTED: &str = "untrusted comment: ";
/// The algorithm of keys, and of signatures over a file itself, as versions of minisign before 0.6 make them.
const PLAIN: [u8; 2] = *b"Ed";
/// The algorithm of signatures over the BLAKE2b-512 of a file.
const PREHASHED: [u8; 2] = *b"ED";

/// The eight bytes that tell a key from others. Its text is that of minisign: sixteen hexadecimal digits, the last byte first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; ID_BYTES]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", u64::from_le_bytes(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not the id of a key: sixteen hexadecimal digits")]
pub struct ParseKeyIdError(String);

impl FromStr for KeyId {
    type Err = ParseKeyIdError;

    fn from_str(text: &str) -> Result<Self, ParseKeyIdError> {
        let digits = text.len() == 2 * ID_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(|number| Self(number.to_le_bytes())).ok_or_else(|| ParseKeyIdError(text.to_owned()))
    }
}

impl Serialize for KeyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn blake2b(bytes: &[u8]) -> [u8; 64] {
    Blake2b512::digest(bytes).into()
}

/// The bytes of a base64 text of known length.
fn decoded<const N: usize>(text: &str) -> Option<[u8; N]> {
    STANDARD.decode(text.trim()).ok()?.try_into().ok()
}

fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The `N` bytes at `at`. Layouts here are arrays of known length, so that it cannot fail.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

/// A comment as a line: what would end it becomes a space.
fn line(comment: &str) -> String {
    comment.replace(|c: char| c.is_control() && c != '\t', " ")
}
