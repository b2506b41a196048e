//! Who has signed the customization of a medium, and whether it may be used.
//!
//! A release cannot vouch for a customization, which is made later and by somebody else. A site signs its own with a key that its
//! systems trust; one signature of any trusted key is enough.

use std::fmt;

use base::failure::{Class, Failure};
use jiff::Timestamp;

use crate::judge::{DocumentError, Signer, Tally, UnsignedReason, joined, list};
use crate::statement::SignatureStatement;
use crate::store::{TrustStore, TrustedKey};
use formats::minisign::{PublicKey, SIGNATURE_BYTES, Signature};
use model::config::CustomizationPolicy;

/// What is known of the origin of a customization that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomizationTrust {
    /// These trusted keys have signed it; at least one.
    Signed(Vec<Signer>),
    /// Any customization may be used.
    Unsigned(UnsignedReason),
}

/// Signs `content`, the bytes of a customization, with `key`, which signs by `sign`: see [`Signature::make`]. `when` is the moment of the
/// signature, which it says of itself.
///
/// # Errors
/// Those of `sign`.
pub fn sign_customization<E>(
    content: &[u8],
    when: Timestamp,
    key: &PublicKey,
    sign: impl FnMut(&[u8]) -> Result<[u8; SIGNATURE_BYTES], E>,
) -> Result<Signature, E> {
    let comment = format!("timestamp:{}\tfile:custom.img\thashed", when.as_second());
    Signature::make(key, content, &format!("customization, signed with the key {}", key.id()), &comment, sign)
}

/// Judges the customization with the bytes `content` by its `signatures`.
///
/// Without one of a trusted key it may be used only if `store` takes any. A signature of a trusted key that is wrong, and one of a
/// revoked key with no other beside it, are refused in any case.
pub fn judge_customization(
    content: &[u8],
    signatures: &[Signature],
    store: &TrustStore,
) -> Result<CustomizationTrust, DocumentError> {
    let verified = |signature: &Signature, TrustedKey { name, key, development }: &TrustedKey| {
        let (name, id) = (name.clone(), key.id());
        match signature.verify(key, content) {
            Ok(()) => {
                let when = SignatureStatement::of(signature.comment()).when;
                Ok(Signer { name, key: id, development: *development, when })
            }
            Err(why) => Err(DocumentError::Signature { name, key: id, why }),
        }
    };
    let tally = Tally::of(signatures, store, |signature| Some(signature.key()), verified);
    match (tally.verdict(1, DocumentError::RevokedKeys)?, store.customization()) {
        (Ok(signers), _) => Ok(CustomizationTrust::Signed(signers)),
        (Err(reason), CustomizationPolicy::Any) => Ok(CustomizationTrust::Unsigned(reason)),
        (Err(reason), CustomizationPolicy::Signed) => Err(DocumentError::Unsigned(reason)),
    }
}

/// The error about the customization of `source`, with the next step.
#[must_use]
pub fn customization_failure(error: DocumentError, source: &str) -> Failure {
    let hint = match &error {
        DocumentError::Unsigned(_) | DocumentError::RevokedKeys(_) => {
            "Sign it with a key that this system trusts: `iso-builder customize … --sign-with KEY`. To install without it: \
             `iso-builder customize --reset`."
        }
        DocumentError::Signature { .. } => {
            "Customize the medium again. If you did not change it, do not use it."
        }
    };
    Failure::new(Class::Verification, format!("the customization of {source} is not trusted"))
        .because(error)
        .hint(hint)
}

/// A clause: `signed by …`, `added by its holder, not signed`.
impl fmt::Display for CustomizationTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(signers) => write!(f, "signed by {}", joined(signers)),
            Self::Unsigned(UnsignedReason::UnknownKeys(keys)) => {
                write!(f, "added by its holder, signed with {}, not trusted here", list("key", keys))
            }
            Self::Unsigned(_) => f.write_str("added by its holder, not signed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use formats::minisign::SecretKey;
    use model::config::UnsignedRelease;
    use proptest::prelude::*;

    use super::*;
    use crate::revocations::Revocations;

    const CONTENT: &[u8] = b"an archive";

    fn key(number: u8) -> SecretKey {
        SecretKey::of_seed([number; 8], [number; 32])
    }

    fn signed(number: u8, content: &[u8]) -> Signature {
        let (key, when) = (key(number), Timestamp::from_second(1_772_448_000).unwrap());
        let sign = |bytes: &[u8]| -> Result<_, ()> { Ok(key.sign_bytes(bytes)) };
        sign_customization(content, when, &key.public_key(), sign).unwrap()
    }

    /// A store that trusts the first two keys and has revoked the third.
    fn store(policy: CustomizationPolicy) -> TrustStore {
        let trusted = |number: u8| TrustedKey {
            name: format!("site {number}"),
            key: key(number).public_key(),
            development: false,
        };
        let revoked = Revocations { keys: [key(3).public_key().id()].into(), ..Revocations::default() };
        let keys = vec![trusted(1), trusted(2), trusted(3)];
        TrustStore::new(keys, 1, UnsignedRelease::Refuse).unwrap().revoking(revoked).customized_by(policy)
    }

    #[test]
    fn a_signature_of_one_trusted_key_is_enough_and_without_it_the_policy_counts() {
        use CustomizationPolicy::{Any, Signed};
        for (signatures, text, any, demanded) in [
            (vec![signed(1, CONTENT)], "signed by site 1 (key 0101010101010101) on 2026-03-02", true, true),
            (vec![signed(7, CONTENT), signed(2, CONTENT)], "signed by site 2", true, true),
            (vec![signed(1, b"other"), signed(2, CONTENT)], "signed by site 2", true, true),
            (vec![signed(3, CONTENT), signed(2, CONTENT)], "signed by site 2", true, true),
            (vec![], "added by its holder, not signed", true, false),
            (
                vec![signed(7, CONTENT)],
                "added by its holder, signed with the key 0707070707070707",
                true,
                false,
            ),
            (vec![signed(3, CONTENT)], "", false, false),
            (vec![signed(1, b"other")], "", false, false),
        ] {
            for (policy, accepted) in [(Any, any), (Signed, demanded)] {
                let judged = judge_customization(CONTENT, &signatures, &store(policy));
                assert_eq!(judged.is_ok(), accepted, "{policy:?} {judged:?}");
                match judged {
                    Ok(trust) => assert!(trust.to_string().starts_with(text), "{trust}"),
                    Err(error) => {
                        let failure = customization_failure(error, "x.iso");
                        assert_eq!(failure.class(), Class::Verification);
                        let text = base::failure::render(&failure.into());
                        assert!(text.contains("the customization of x.iso is not trusted"), "{text}");
                        assert!(text.contains("next: "), "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_trust_store_keeps_what_it_says_of_customizations() {
        let demanding = store(CustomizationPolicy::Signed);
        assert_eq!(TrustStore::parse(&demanding.to_bytes()).unwrap(), demanding);
        let any = String::from_utf8(store(CustomizationPolicy::Any).to_bytes()).unwrap();
        assert!(!any.contains("customization"), "{any}");
        let owner = model::config::Trust::default();
        assert_eq!(demanding.with_owner(&owner).unwrap().customization(), CustomizationPolicy::Signed);
    }

    proptest! {
        #[test]
        fn no_other_content_is_accepted(content: Vec<u8>) {
            prop_assume!(content != CONTENT);
            let signatures = [signed(1, CONTENT)];
            prop_assert!(judge_customization(&content, &signatures, &store(CustomizationPolicy::Any)).is_err());
        }
    }
}
