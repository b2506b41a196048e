//! Who has signed the provenance of a release, and whether it may be believed.
//!
//! As many different keys have to sign it as a release. Nothing is installed by it: only commands that show or check a release ask.

use base::failure::{Class, Failure};

use crate::judge::{DocumentError, ReleaseTrust, Signer, Tally};
use crate::store::{TrustStore, TrustedKey};
use formats::dsse::{Envelope, EnvelopeSignature};
use model::config::UnsignedRelease;

/// Judges the provenance in `envelope` by its signatures, with the rules of a release: enough keys of `store` have to have signed it,
/// unless `store` allows unsigned releases. If too few have, a wrong signature of a trusted key, and one of a revoked key, are refused in
/// any case.
pub fn judge_provenance(envelope: &Envelope, store: &TrustStore) -> Result<ReleaseTrust, DocumentError> {
    let verified = |signature: &EnvelopeSignature, TrustedKey { name, key, development }: &TrustedKey| {
        let (name, id) = (name.clone(), key.id());
        match signature.verify(key, envelope) {
            Ok(()) => Ok(Signer { name, key: id, development: *development, when: None }),
            Err(why) => Err(DocumentError::Signature { name, key: id, why }),
        }
    };
    let tally = Tally::of(envelope.signatures(), store, EnvelopeSignature::key, verified);
    match (tally.verdict(store.threshold(), DocumentError::RevokedKeys)?, store.unsigned()) {
        (Ok(signers), _) => Ok(ReleaseTrust::Signed(signers)),
        (Err(reason), UnsignedRelease::Allow) => Ok(ReleaseTrust::Unsigned(reason)),
        (Err(reason), UnsignedRelease::Refuse) => Err(DocumentError::Unsigned(reason)),
    }
}

/// The error about the provenance `source`, with the next step.
#[must_use]
pub fn provenance_failure(error: DocumentError, source: &str) -> Failure {
    let hint = match &error {
        DocumentError::Unsigned(_) | DocumentError::RevokedKeys(_) => {
            "Sign it with `iso-builder keys sign`, remove it, or use it all the same: --allow-unsigned."
        }
        DocumentError::Signature { .. } => {
            "Copy or download the release again. If that does not help, do not use it, and tell its maker."
        }
    };
    Failure::new(Class::Verification, format!("the provenance {source} is not trusted"))
        .because(error)
        .hint(hint)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use formats::minisign::SecretKey;
    use proptest::prelude::*;

    use super::*;
    use crate::revocations::Revocations;

    fn key(number: u8) -> SecretKey {
        SecretKey::of_seed([number; 8], [number; 32])
    }

    /// An envelope that these keys have signed; a key above 100 signs other bytes under the id of that below.
    fn signed(keys: &[u8]) -> Envelope {
        let mut envelope = Envelope::new("application/vnd.in-toto+json", b"{}".to_vec());
        for number in keys {
            let key = key(number % 100);
            let sign = |bytes: &[u8]| -> Result<_, Infallible> {
                Ok(if *number > 100 { key.sign_bytes(b"other") } else { key.sign_bytes(bytes) })
            };
            envelope.sign(&key.public_key(), sign).unwrap();
        }
        envelope
    }

    /// A store that trusts the first three keys and has revoked the third.
    fn store(threshold: usize, unsigned: UnsignedRelease) -> TrustStore {
        let trusted = |number: u8| TrustedKey {
            name: format!("key {number}"),
            key: key(number).public_key(),
            development: false,
        };
        let revoked = Revocations { keys: [key(3).public_key().id()].into(), ..Revocations::default() };
        TrustStore::new(vec![trusted(1), trusted(2), trusted(3)], threshold, unsigned)
            .unwrap()
            .revoking(revoked)
    }

    #[test]
    fn as_many_keys_have_to_sign_as_a_release_and_what_is_missing_is_told() {
        use UnsignedRelease::{Allow, Refuse};
        for (keys, threshold, text, allowed) in [
            (&[1][..], 1, "signed by key 1 (key 0101010101010101)", true),
            (&[1, 2], 2, "signed by key 1 (key 0101010101010101), key 2", true),
            (&[101, 2], 1, "signed by key 2", true),
            (&[1], 2, "1 of 2 trusted keys that are needed have signed it", true),
            (&[], 1, "it is not signed", true),
            (&[7], 1, "it is signed with the key 0707070707070707, not trusted here", true),
            (&[101], 1, "the signature of key 1 (key 0101010101010101) does not belong to it", false),
            (&[3], 1, "it is signed with the key 0303030303030303, which is revoked", false),
            (&[1, 3], 2, "which is revoked", false),
        ] {
            let envelope = signed(keys);
            match judge_provenance(&envelope, &store(threshold, Refuse)) {
                Ok(trust) => assert!(trust.to_string().starts_with(text), "{keys:?}: {trust}"),
                Err(error) => {
                    let failure = provenance_failure(error, "dist/x");
                    assert_eq!(failure.class(), Class::Verification);
                    let told = base::failure::render(&failure.into());
                    assert!(told.contains(text) && told.contains("next: "), "{keys:?}: {told}");
                }
            }
            let judged = judge_provenance(&envelope, &store(threshold, Allow));
            assert_eq!(judged.is_ok(), allowed, "{keys:?}: {judged:?}");
        }
    }

    proptest! {
        #[test]
        fn no_changed_envelope_is_believed(place: prop::sample::Index, byte: u8) {
            let original = signed(&[1]);
            let mut line = original.to_line();
            let place = place.index(line.len());
            line[place] = byte;
            if let Ok(changed) = Envelope::parse(&line) {
                let judged = judge_provenance(&changed, &store(1, UnsignedRelease::Refuse));
                prop_assert!(judged.is_err() || changed.payload() == original.payload());
            }
        }
    }
}
