//! The half of a key that signs, in a file that a passphrase protects.

use std::fmt;

use blake2::{Blake2b256, Digest as _};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::{
    ID_BYTES, KEY_BYTES, KeyId, PLAIN, PublicKey, SIGNATURE_BYTES, Signature, UNTRUSTED, decoded, encoded,
    field, line,
};

/// How a passphrase becomes the key of the file: scrypt.
const SCRYPT: [u8; 2] = *b"Sc";
/// The file is not protected.
const NO_PASSPHRASE: [u8; 2] = [0; 2];
/// The checksum of a file is a BLAKE2b-256.
const BLAKE2: [u8; 2] = *b"B2";
const SALT_BYTES: usize = 32;
/// Id, seed, public key and checksum: what the passphrase encrypts.
const PROTECTED_BYTES: usize = ID_BYTES + KEY_BYTES + KEY_BYTES + 32;
/// Where the checksum is among them.
const CHECKSUM_AT: usize = PROTECTED_BYTES - 32;
/// Where they begin, behind three algorithms, the salt and the two limits.
const PROTECTED_AT: usize = 6 + SALT_BYTES + 16;
const FILE_BYTES: usize = PROTECTED_AT + PROTECTED_BYTES;
/// The most memory, in bytes, that a file can make its reader take: what minisign itself writes.
const MEMORY_LIMIT: u64 = 1 << 30;

/// What guessing a passphrase costs: the two limits of libsodium, from which the parameters of scrypt follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyDerivation {
    /// Operations of one try.
    pub operations: u64,
    /// Bytes of memory of one try.
    pub memory: u64,
}

impl KeyDerivation {
    /// That of minisign: 1 GiB, and some seconds.
    pub const MINISIGN: Self = Self { operations: 1 << 25, memory: MEMORY_LIMIT };

    /// libsodium's `pickparams`.
    pub(super) fn parameters(self) -> Option<scrypt::Params> {
        const R: u64 = 8;
        let operations = self.operations.max(1 << 15);
        if self.memory > MEMORY_LIMIT || operations > Self::MINISIGN.operations {
            return None;
        }
        let log2 = |most: u64| (1..30).find(|n| (1 << n) > most / 2).unwrap_or(30);
        let (log_n, p) = if operations < self.memory / 32 {
            (log2(operations / (R * 4)), 1)
        } else {
            let log_n = log2(self.memory / (R * 128));
            (log_n, (operations / 4 / (1 << log_n)) / R)
        };
        scrypt::Params::new(log_n, R as u32, u32::try_from(p).ok()?).ok()
    }

    /// The bytes that encrypt a file with this salt.
    fn stream(self, passphrase: &[u8], salt: &[u8]) -> Option<[u8; PROTECTED_BYTES]> {
        let mut stream = [0; PROTECTED_BYTES];
        scrypt::scrypt(passphrase, salt, &self.parameters()?, &mut stream).ok()?;
        Some(stream)
    }
}

/// An Ed25519 key that signs.
#[derive(Clone)]
pub struct SecretKey {
    id: KeyId,
    seed: [u8; KEY_BYTES],
    public: [u8; KEY_BYTES],
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseSecretKeyError {
    #[error("it is a public key; the file beside it without .pub has the secret one")]
    Public,
    #[error(
        "it is not a secret key of minisign: two lines, the second of which has 212 characters and begins with RW"
    )]
    Layout,
    #[error("it wants more memory or time for its passphrase than minisign's own files do (1 GiB)")]
    Derivation,
    #[error("it is protected by a passphrase, and none was given")]
    NoPassphrase,
    #[error("the passphrase is wrong")]
    Passphrase,
    #[error("its checksum is wrong: the file is damaged")]
    Checksum,
}

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let (mut id, mut seed) = ([0; ID_BYTES], [0; KEY_BYTES]);
        getrandom::fill(&mut id)?;
        getrandom::fill(&mut seed)?;
        Ok(Self::of(KeyId(id), seed))
    }

    /// The key of a seed, for tests and for those who keep one.
    #[must_use]
    pub fn of_seed(id: [u8; ID_BYTES], seed: [u8; KEY_BYTES]) -> Self {
        Self::of(KeyId(id), seed)
    }

    fn of(id: KeyId, seed: [u8; KEY_BYTES]) -> Self {
        Self { id, seed, public: field(pair(&seed).public_key().as_ref(), 0) }
    }

    /// Whether the file in `text` is protected by a passphrase.
    pub fn needs_passphrase(text: &str) -> Result<bool, ParseSecretKeyError> {
        Ok(field(&file(text)?, 2) == SCRYPT)
    }

    /// Reads the two lines of a file. This takes seconds and 1 GiB of memory where it has a passphrase.
    pub fn parse(text: &str, passphrase: Option<&[u8]>) -> Result<Self, ParseSecretKeyError> {
        let file = file(text)?;
        let mut protected: [u8; PROTECTED_BYTES] = field(&file, PROTECTED_AT);
        let encrypted = field(&file, 2) == SCRYPT;
        if encrypted {
            let passphrase = passphrase.ok_or(ParseSecretKeyError::NoPassphrase)?;
            let limit = |at| u64::from_le_bytes(field(&file, at));
            let derivation =
                KeyDerivation { operations: limit(6 + SALT_BYTES), memory: limit(6 + SALT_BYTES + 8) };
            let stream = derivation.stream(passphrase, &file[6..6 + SALT_BYTES]);
            exclusive_or(&mut protected, &stream.ok_or(ParseSecretKeyError::Derivation)?);
        }
        let key = Self::of(KeyId(field(&protected, 0)), field(&protected, ID_BYTES));
        let mut wanted = key.protected();
        if !encrypted && protected[CHECKSUM_AT..].iter().all(|byte| *byte == 0) {
            // minisign writes none into a file without a passphrase.
            wanted[CHECKSUM_AT..].fill(0);
        }
        if wanted == protected {
            return Ok(key);
        }
        Err(if encrypted { ParseSecretKeyError::Passphrase } else { ParseSecretKeyError::Checksum })
    }

    /// The file with this key: two lines.
    ///
    /// # Errors
    /// The kernel gives no random bytes for the salt.
    pub fn to_text(
        &self,
        comment: &str,
        passphrase: Option<(&[u8], KeyDerivation)>,
    ) -> Result<String, getrandom::Error> {
        let (mut salt, mut protected) = ([0; SALT_BYTES], self.protected());
        let (algorithm, limits) = match passphrase {
            None => (NO_PASSPHRASE, KeyDerivation { operations: 0, memory: 0 }),
            Some((passphrase, derivation)) => {
                getrandom::fill(&mut salt)?;
                let stream = derivation.stream(passphrase, &salt).ok_or(getrandom::Error::UNEXPECTED)?;
                exclusive_or(&mut protected, &stream);
                (SCRYPT, derivation)
            }
        };
        let limits = [limits.operations.to_le_bytes(), limits.memory.to_le_bytes()].concat();
        let file = [&PLAIN[..], &algorithm, &BLAKE2, &salt, &limits, &protected].concat();
        Ok(format!("{UNTRUSTED}{}\n{}\n", line(comment), encoded(&file)))
    }

    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        PublicKey { id: self.id, bytes: self.public }
    }

    /// An Ed25519 signature over `bytes` as they are.
    #[must_use]
    pub fn sign_bytes(&self, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        field(pair(&self.seed).sign(bytes).as_ref(), 0)
    }

    /// Signs a file and a comment.
    #[must_use]
    pub fn sign(&self, message: &[u8], untrusted: &str, comment: &str) -> Signature {
        let made: Result<_, std::convert::Infallible> =
            Signature::make(&self.public_key(), message, untrusted, comment, |bytes| {
                Ok(self.sign_bytes(bytes))
            });
        let Ok(signature) = made;
        signature
    }

    /// Id, seed, public key, and the checksum of algorithm and those.
    fn protected(&self) -> [u8; PROTECTED_BYTES] {
        let plain = [&self.id.0[..], &self.seed, &self.public].concat();
        let checksum = Blake2b256::digest([&PLAIN[..], &plain].concat());
        field(&[&plain[..], &checksum].concat(), 0)
    }
}

#[expect(clippy::expect_used, reason = "every 32 bytes are a seed of Ed25519 (RFC 8032, section 5.1.5)")]
fn pair(seed: &[u8; KEY_BYTES]) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(seed).expect("32 bytes are a seed")
}

/// The second line of a file, decoded, with algorithms that are known.
fn file(text: &str) -> Result<[u8; FILE_BYTES], ParseSecretKeyError> {
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(UNTRUSTED.trim()));
    let (Some(key), None) = (lines.next(), lines.next()) else { return Err(ParseSecretKeyError::Layout) };
    if PublicKey::parse(key).is_ok() {
        return Err(ParseSecretKeyError::Public);
    }
    let bytes: [u8; FILE_BYTES] = decoded(key).ok_or(ParseSecretKeyError::Layout)?;
    let derivation: [u8; 2] = field(&bytes, 2);
    let known = field(&bytes, 0) == PLAIN
        && (derivation == SCRYPT || derivation == NO_PASSPHRASE)
        && field(&bytes, 4) == BLAKE2;
    if known { Ok(bytes) } else { Err(ParseSecretKeyError::Layout) }
}

fn exclusive_or(bytes: &mut [u8], stream: &[u8]) {
    for (byte, with) in bytes.iter_mut().zip(stream) {
        *byte ^= with;
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.id)
    }
}
