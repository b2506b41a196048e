//! The keys that this builder trusts when it reads a finished release: those in the user's key directory, and those that are
//! named.

use std::collections::BTreeSet;

use anyhow::Result;
use base::failure::{Class, Classify};
use medium::customization::Content;
use medium::reader::MediumReader;
use serde::Serialize;
use trust::{
    CustomizationPolicy, CustomizationTrust, ReleaseTrust, TrustStore, TrustedKey, UnsignedRelease,
    judge_customization,
};

use super::key_directory::KeyDirectory;
use super::signer::{named_key, trusted};

/// The store of the keys in `directory` and `named`, each a file or the line of a public key. One signature of any of them is
/// enough. Without `allow_unsigned`, releases that none of them has signed are refused.
pub fn known_keys(directory: &KeyDirectory, named: &[String], allow_unsigned: bool) -> Result<TrustStore> {
    let mut keys: Vec<TrustedKey> = named.iter().map(|key| named_key(key)).collect::<Result<_>>()?;
    keys.extend(public_keys(directory)?);
    // A key that is named is often in the directory too.
    let mut known = BTreeSet::new();
    keys.retain(|key| known.insert(key.key.id()));
    let unsigned = if allow_unsigned { UnsignedRelease::Allow } else { UnsignedRelease::Refuse };
    TrustStore::new(keys, 1, unsigned).class(Class::Invalid, || "collecting the known keys".to_owned())
}

/// The public keys in `directory`.
pub fn public_keys(directory: &KeyDirectory) -> Result<Vec<TrustedKey>> {
    Ok(directory.public_keys()?.iter().map(trusted).collect())
}

/// What a command shows of the signatures of a release, whether it may be used or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignatureSummary {
    /// True if trusted keys have signed the release.
    pub trusted: bool,
    /// `signed by …`, `not signed`, or what is wrong.
    pub text: String,
}

impl SignatureSummary {
    /// That of the customization of a medium, by the keys of `store`, whether installs demand one or not.
    #[must_use]
    pub fn of_customization(content: &Content, store: &TrustStore) -> Self {
        let judged = content.signed_bytes().map(|bytes| {
            let store = store.clone().customized_by(CustomizationPolicy::Any);
            judge_customization(&bytes, &content.signatures, &store)
        });
        match judged {
            Ok(Ok(trust)) => {
                Self { trusted: matches!(trust, CustomizationTrust::Signed(_)), text: trust.to_string() }
            }
            Ok(Err(error)) => Self { trusted: false, text: error.to_string() },
            Err(error) => Self { trusted: false, text: error.to_string() },
        }
    }

    /// That of a medium, by the keys of `store`, whatever it says about unsigned releases.
    #[must_use]
    pub fn of(medium: &MediumReader, store: &TrustStore) -> Self {
        match medium.judge(&store.clone().allowing_unsigned(true)) {
            Ok(trust) => Self { trusted: matches!(trust, ReleaseTrust::Signed(_)), text: trust.to_string() },
            Err(error) => Self { trusted: false, text: base::failure::causes(&error).join(": ") },
        }
    }
}
