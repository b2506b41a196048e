//! DSSE envelopes: a document, its type, and signatures over both (<https://github.com/secure-systems-lab/dsse>, version 1.0.2).
//!
//! Signatures here are those of Ed25519 over the bytes of [`Envelope::signed_bytes`], by the keys of [`minisign`](crate::minisign),
//! whose ids are the `keyid`. Signatures of other kinds of keys are kept as they are.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::minisign::{KeyId, PublicKey, SIGNATURE_BYTES, SignatureError};

/// The largest envelope that is read, in bytes.
pub const MAX_ENVELOPE_BYTES: u64 = 16 << 20;
/// The most signatures of an envelope.
const MAX_SIGNATURES: usize = 64;
/// What the signed bytes begin with.
const PREFIX: &str = "DSSEv1";

/// A document with its signatures. Nobody has verified them: see [`EnvelopeSignature::verify`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    payload_type: String,
    #[serde(with = "base64_text")]
    payload: Vec<u8>,
    signatures: Vec<EnvelopeSignature>,
}

/// A signature over an envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeSignature {
    /// What its maker calls the key. Nobody vouches for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    keyid: String,
    #[serde(with = "base64_text")]
    sig: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum ParseEnvelopeError {
    #[error("it is larger than {MAX_ENVELOPE_BYTES} bytes")]
    Size,
    #[error("it is not a DSSE envelope: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it has {0} signatures, and an envelope has at most {MAX_SIGNATURES}")]
    Signatures(usize),
}

impl Envelope {
    /// An envelope that nobody has signed. `payload_type` says what `payload` is: a media type.
    #[must_use]
    pub fn new(payload_type: &str, payload: Vec<u8>) -> Self {
        Self { payload_type: payload_type.to_owned(), payload, signatures: Vec::new() }
    }

    /// Reads an envelope: one JSON document. Keys that the specification does not have are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseEnvelopeError> {
        if bytes.len() as u64 > MAX_ENVELOPE_BYTES {
            return Err(ParseEnvelopeError::Size);
        }
        let envelope: Self = serde_json::from_slice(bytes)?;
        match envelope.signatures.len() {
            count if count > MAX_SIGNATURES => Err(ParseEnvelopeError::Signatures(count)),
            _ => Ok(envelope),
        }
    }

    /// The envelope as one line with its end. The same envelope gives the same bytes.
    #[must_use]
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = base::encode::json_line(self);
        line.push(b'\n');
        line
    }

    /// The media type of the payload. Not the word of a signer before [`EnvelopeSignature::verify`].
    #[must_use]
    pub fn payload_type(&self) -> &str {
        &self.payload_type
    }

    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    #[must_use]
    pub fn signatures(&self) -> &[EnvelopeSignature] {
        &self.signatures
    }

    /// What a signature is over: `PAE(UTF8(payloadType), payload)` of the specification.
    #[must_use]
    pub fn signed_bytes(&self) -> Vec<u8> {
        let Self { payload_type, payload, .. } = self;
        let head = format!("{PREFIX} {} {payload_type} {} ", payload_type.len(), payload.len());
        [head.as_bytes(), payload].concat()
    }

    /// Adds the signature of `key`, which signs by `sign`; it gets the [signed bytes](Self::signed_bytes). An earlier signature of
    /// the same key is replaced.
    ///
    /// # Errors
    /// Those of `sign`.
    pub fn sign<E>(
        &mut self,
        key: &PublicKey,
        sign: impl FnOnce(&[u8]) -> Result<[u8; SIGNATURE_BYTES], E>,
    ) -> Result<(), E> {
        let keyid = key.id().to_string();
        let signature = EnvelopeSignature { keyid, sig: sign(&self.signed_bytes())?.to_vec() };
        let is_own = |known: &EnvelopeSignature| known.key() == Some(key.id());
        let place = self.signatures.iter().position(is_own).unwrap_or(self.signatures.len());
        self.signatures.retain(|known| !is_own(known));
        self.signatures.insert(place, signature);
        Ok(())
    }
}

impl EnvelopeSignature {
    /// The key that made it, by what it says; none if it names no key of minisign.
    #[must_use]
    pub fn key(&self) -> Option<KeyId> {
        self.keyid.parse().ok()
    }

    /// The name of its key, as its maker wrote it.
    #[must_use]
    pub fn key_name(&self) -> &str {
        &self.keyid
    }

    /// Checks that `key` made it over `envelope`.
    pub fn verify(&self, key: &PublicKey, envelope: &Envelope) -> Result<(), SignatureError> {
        let signed = self.key() == Some(key.id()) && key.signed(&envelope.signed_bytes(), &self.sig);
        if signed { Ok(()) } else { Err(SignatureError::File) }
    }
}

/// Bytes as base64. Readers accept both alphabets of RFC 4648, as the specification demands.
mod base64_text {
    use super::{Deserialize, Deserializer, Engine, STANDARD, Serializer, URL_SAFE};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let decoded = STANDARD.decode(&text).or_else(|_| URL_SAFE.decode(&text));
        decoded.map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::fs;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;
    use crate::minisign::SecretKey;

    const TYPE: &str = "application/vnd.in-toto+json";

    fn key(number: u8) -> SecretKey {
        SecretKey::of_seed([number; 8], [number; 32])
    }

    fn signed(payload: &[u8], keys: &[u8]) -> Envelope {
        let mut envelope = Envelope::new(TYPE, payload.to_vec());
        for number in keys {
            add(&mut envelope, *number);
        }
        envelope
    }

    fn add(envelope: &mut Envelope, number: u8) {
        let key = key(number);
        let sign = |bytes: &[u8]| -> Result<_, Infallible> { Ok(key.sign_bytes(bytes)) };
        envelope.sign(&key.public_key(), sign).unwrap();
    }

    #[test]
    fn the_signed_bytes_are_those_of_the_specification() {
        let envelope = Envelope::new("http://example.com/HelloWorld", b"hello world".to_vec());
        assert_eq!(envelope.signed_bytes(), b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }

    #[test]
    fn an_envelope_is_one_line_and_reads_back() {
        let envelope = signed(b"{\"a\": \"b\\nc\"}", &[1, 2]);
        let line = envelope.to_line();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(Envelope::parse(&line).unwrap(), envelope);
    }

    #[test]
    fn both_alphabets_of_base64_and_keys_of_others_are_read() {
        let text = r#"{"payload": "-_-_", "payloadType": "x", "more": {}, "signatures": [{"sig": "+/+/", "cert": 1}]}"#;
        let envelope = Envelope::parse(text.as_bytes()).unwrap();
        assert_eq!(envelope.payload(), [0xfb, 0xff, 0xbf]);
        let [signature] = envelope.signatures() else { panic!("{envelope:?}") };
        assert_eq!((signature.key(), signature.key_name()), (None, ""));
        assert!(signature.verify(&key(1).public_key(), &envelope).is_err());
    }

    #[test]
    fn the_same_key_again_replaces_its_own_signature_and_no_other() {
        let mut envelope = signed(b"one", &[1, 2, 3]);
        let before = envelope.clone();
        add(&mut envelope, 2);
        assert_eq!(envelope, before);
        envelope.payload = b"two".to_vec();
        add(&mut envelope, 2);
        let good = |number: u8| {
            let public = key(number).public_key();
            let own = envelope.signatures().iter().find(|one| one.key() == Some(public.id()));
            own.is_some_and(|own| own.verify(&public, &envelope).is_ok())
        };
        assert_eq!([1, 2, 3].map(good), [false, true, false]);
    }

    #[test]
    fn what_is_no_envelope_or_too_large_is_refused() {
        for text in ["", "[]", "{}", "{\"payload\":\"\",\"payloadType\":\"\"}", "null"] {
            assert!(Envelope::parse(text.as_bytes()).is_err(), "{text}");
        }
        let twice = [signed(b"x", &[]).to_line(), signed(b"x", &[]).to_line()].concat();
        assert!(Envelope::parse(&twice).is_err(), "one line, one envelope");
        let signature = r#"{"sig":""}"#;
        let many = vec![signature; MAX_SIGNATURES + 1].join(",");
        let text = format!(r#"{{"payload":"","payloadType":"","signatures":[{many}]}}"#);
        assert!(matches!(Envelope::parse(text.as_bytes()), Err(ParseEnvelopeError::Signatures(65))));
        let large = vec![b' '; usize::try_from(MAX_ENVELOPE_BYTES).unwrap() + 1];
        assert!(matches!(Envelope::parse(&large), Err(ParseEnvelopeError::Size)));
    }

    #[test]
    fn openssl_verifies_a_signature() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let envelope = signed(b"{\"_type\":\"x\"}", &[7]);
        // SubjectPublicKeyInfo of an Ed25519 key (RFC 8410, section 4): a constant head, then the key.
        let head = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        let line = STANDARD.decode(key(7).public_key().to_string()).unwrap();
        let public = file("key.der", &[&head[..], &line[10..]].concat());
        let signature = file("sig", &envelope.signatures()[0].sig);
        let verifies = |bytes: &[u8]| {
            let signed = file("signed", bytes);
            let mut openssl = Command::new("openssl");
            openssl
                .args(["pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER", "-inkey"])
                .arg(&public);
            openssl.arg("-sigfile").arg(&signature).arg("-in").arg(signed);
            openssl.output().unwrap().status.success()
        };
        assert!(verifies(&envelope.signed_bytes()));
        assert!(!verifies(envelope.payload()));
    }

    proptest! {
        #[test]
        fn a_changed_envelope_is_never_taken_for_another_document(place: prop::sample::Index, byte: u8) {
            let original = signed(b"{\"_type\":\"https://in-toto.io/Statement/v1\"}", &[1]);
            let mut line = original.to_line();
            let place = place.index(line.len());
            line[place] = byte;
            if let Ok(changed) = Envelope::parse(&line) {
                let key = key(1).public_key();
                let accepted = changed.signatures().iter().any(|one| one.verify(&key, &changed).is_ok());
                prop_assert!(!accepted || changed.signed_bytes() == original.signed_bytes());
            }
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, text: String) {
            let _ = Envelope::parse(&bytes);
            let _ = Envelope::parse(format!(r#"{{"payload":"{text}","payloadType":"","signatures":[]}}"#).as_bytes());
        }

        #[test]
        fn types_and_payloads_are_not_confused(one: String, first: Vec<u8>, other: String, second: Vec<u8>) {
            prop_assume!((&one, &first) != (&other, &second));
            prop_assert_ne!(Envelope::new(&one, first).signed_bytes(), Envelope::new(&other, second).signed_bytes());
        }
    }
}
