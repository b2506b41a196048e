//! Signatures: read, made, verified.

use std::fmt;

use super::{
    ID_BYTES, KeyId, PLAIN, PREHASHED, PublicKey, SIGNATURE_BYTES, UNTRUSTED, blake2b, decoded, encoded,
    field, line,
};

const TRUSTED: &str = "trusted comment: ";
/// Lines of a signature.
const LINES: usize = 4;

/// A signature over a file, and a second one over the first and a comment.
#[derive(Clone, PartialEq, Eq)]
pub struct Signature {
    untrusted: String,
    prehashed: bool,
    key: KeyId,
    signature: [u8; SIGNATURE_BYTES],
    comment: String,
    over_comment: [u8; SIGNATURE_BYTES],
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseSignatureError {
    #[error("it is not text")]
    Text,
    #[error("it has no signature")]
    Empty,
    #[error("line {0} is missing: a signature has four lines, so the file is cut off")]
    CutOff(usize),
    #[error("line {line} is not {what}")]
    Line { line: usize, what: &'static str },
}

/// What is wrong with a signature.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SignatureError {
    /// Its bytes are damaged, or it is one over other bytes: they cannot be told apart.
    #[error("it is a signature of another file, or was changed")]
    File,
    #[error("its trusted comment was changed")]
    Comment,
}

/// Reads a file of one or several signatures, one after the other. Empty lines between and behind them do not count.
pub fn parse_signatures(bytes: &[u8]) -> Result<Vec<Signature>, ParseSignatureError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ParseSignatureError::Text)?;
    let lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    let lines: Vec<(usize, &str)> = (1..).zip(lines).filter(|(_, line)| !line.is_empty()).collect();
    if lines.is_empty() {
        return Err(ParseSignatureError::Empty);
    }
    lines.chunks(LINES).map(Signature::of_lines).collect()
}

impl Signature {
    fn of_lines(lines: &[(usize, &str)]) -> Result<Self, ParseSignatureError> {
        let &[(first, untrusted), (second, signature), (third, comment), (fourth, over_comment)] = lines
        else {
            let last = lines.last().map_or(0, |(number, _)| *number);
            return Err(ParseSignatureError::CutOff(last + 1));
        };
        let wrong = |line, what| ParseSignatureError::Line { line, what };
        let untrusted = untrusted
            .strip_prefix(UNTRUSTED)
            .ok_or(wrong(first, "an untrusted comment, with which a signature begins"))?;
        let bytes: [u8; 2 + ID_BYTES + SIGNATURE_BYTES] =
            decoded(signature).ok_or(wrong(second, "a signature of Ed25519 in base64"))?;
        let prehashed = match field(&bytes, 0) {
            PREHASHED => true,
            PLAIN => false,
            _ => return Err(wrong(second, "a signature of Ed25519 in base64")),
        };
        Ok(Self {
            untrusted: untrusted.to_owned(),
            prehashed,
            key: KeyId(field(&bytes, 2)),
            signature: field(&bytes, 2 + ID_BYTES),
            comment: comment.strip_prefix(TRUSTED).ok_or(wrong(third, "a trusted comment"))?.to_owned(),
            over_comment: decoded(over_comment)
                .ok_or(wrong(fourth, "the signature of the comment in base64"))?,
        })
    }

    /// Signs `message` with the key of `key` by `sign`, which makes an Ed25519 signature over the bytes it gets. It is called
    /// twice: with the 64 bytes of the BLAKE2b-512 of `message`, then with its first answer and `comment`.
    ///
    /// # Errors
    /// Those of `sign`.
    pub fn make<E>(
        key: &PublicKey,
        message: &[u8],
        untrusted: &str,
        comment: &str,
        mut sign: impl FnMut(&[u8]) -> Result<[u8; SIGNATURE_BYTES], E>,
    ) -> Result<Self, E> {
        let signature = sign(&blake2b(message))?;
        let comment = line(comment);
        let over_comment = sign(&[&signature[..], comment.as_bytes()].concat())?;
        Ok(Self {
            untrusted: line(untrusted),
            prehashed: true,
            key: key.id,
            signature,
            comment,
            over_comment,
        })
    }

    /// The key that made it, by what it says. Only [`Self::verify`] tells whether that is so.
    #[must_use]
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// What its maker signed beside the file. Nobody else's word only after [`Self::verify`].
    #[must_use]
    pub fn comment(&self) -> &str {
        &self.comment
    }

    /// Checks that `key` made it over `message` and the comment.
    pub fn verify(&self, key: &PublicKey, message: &[u8]) -> Result<(), SignatureError> {
        let hash = self.prehashed.then(|| blake2b(message));
        let message = hash.as_ref().map_or(message, |hash| &hash[..]);
        if self.key != key.id || !key.signed(message, &self.signature) {
            return Err(SignatureError::File);
        }
        let commented = [&self.signature[..], self.comment.as_bytes()].concat();
        if key.signed(&commented, &self.over_comment) { Ok(()) } else { Err(SignatureError::Comment) }
    }
}

/// The four lines, with the end of the last.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = if self.prehashed { PREHASHED } else { PLAIN };
        writeln!(f, "{UNTRUSTED}{}", self.untrusted)?;
        writeln!(f, "{}", encoded(&[&algorithm[..], &self.key.0, &self.signature].concat()))?;
        writeln!(f, "{TRUSTED}{}", self.comment)?;
        writeln!(f, "{}", encoded(&self.over_comment))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({}, {:?})", self.key, self.comment)
    }
}
