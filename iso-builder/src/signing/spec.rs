//! `trust` of an image definition, and the trust store that goes into the OS image.

use std::num::NonZeroUsize;

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use document::finding::Finding;
use document::format::{FormatFault, FormatResult};
use formats::minisign::{ParsePublicKeyError, PublicKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::{TrustStore, TrustedKey, UnsignedReleases};

/// Whose releases the nodes take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrustSpec {
    /// The public keys that sign releases. Without any, the key that signs the build is the only one.
    pub keys: Vec<KeySpec>,
    /// How many different keys of these have to sign a release: one, unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<NonZeroUsize>,
    /// What the nodes do with a release that is not signed so.
    pub unsigned: UnsignedSpec,
}

/// A key that signs releases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeySpec {
    /// What it is called wherever a release that it has signed is shown.
    pub name: String,
    /// The second line of its file NAME.pub, as `iso-builder keys show` and minisign print it.
    pub key: String,
}

/// What becomes of a release without enough signatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnsignedSpec {
    /// It is refused, unless a person allows it.
    #[default]
    Refuse,
    /// It is taken, with a warning. Whoever can change a medium, or answers for a server, can change the nodes.
    Allow,
}

/// Checks the line of a public key.
pub(crate) fn public_key(text: &str) -> FormatResult {
    PublicKey::parse(text).map(drop).map_err(|error| match error {
        ParsePublicKeyError::Secret => {
            let message = "is a secret key, and everybody can read a definition; take the line of the file that ends in .pub";
            FormatFault { sensitive: true, ..FormatFault::new(message) }
        }
        ParsePublicKeyError::Layout => {
            FormatFault::new("is not a public key of minisign: 56 characters, the first of which are RW")
        }
    })
}

impl TrustSpec {
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What does not fit together.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let id = |spec: &KeySpec| PublicKey::parse(&spec.key).ok().map(|key| key.id());
        for (index, spec) in self.keys.iter().enumerate() {
            let before = || self.keys[..index].iter().filter_map(id);
            if let Some(twice) = id(spec).filter(|id| before().any(|other| other == *id)) {
                found.push(Finding::new(
                    format!("trust.keys[{index}].key"),
                    "duplicate-key",
                    format!("the key {twice} is in the list twice"),
                ));
            }
        }
        let most = self.keys.len().max(1);
        if let Some(threshold) = self.threshold.filter(|threshold| threshold.get() > most) {
            let message = format!("{threshold} signatures are demanded, and {most} can be made");
            found.push(Finding::new("trust.threshold", "invalid-threshold", message));
        }
        found
    }

    /// The trust store of the OS image of a build that is signed with `signer`, or not.
    ///
    /// # Errors
    /// [`Class::Invalid`] if the nodes of this build would refuse it: nobody signs it and unsigned releases are not allowed, or it
    /// is signed with a key that is not in the definition.
    pub fn store(&self, signer: Option<&TrustedKey>) -> Result<TrustStore> {
        let unsigned = match self.unsigned {
            UnsignedSpec::Refuse => UnsignedReleases::Refuse,
            UnsignedSpec::Allow => UnsignedReleases::Allow,
        };
        let parse = |spec: &KeySpec| {
            let key = PublicKey::parse(&spec.key)
                .class(Class::Invalid, || format!("reading the key {} of the definition", spec.name))?;
            Ok(TrustedKey { name: spec.name.clone(), key, development: false })
        };
        let mut keys = self.keys.iter().map(parse).collect::<Result<Vec<_>>>()?;
        match signer {
            Some(signer) if keys.is_empty() => keys.push(signer.clone()),
            Some(signer) if keys.iter().all(|key| key.key != signer.key) => {
                let what = format!(
                    "the key {} ({}) is not one of those that the definition trusts",
                    signer.name,
                    signer.key.id()
                );
                let why = anyhow::anyhow!("nodes of this build would refuse their own release");
                return Err(Failure::new(Class::Invalid, what)
                    .because(why)
                    .hint(format!(
                        "Sign with a key of `trust.keys`, or add this one: {{name: {}, key: {}}}",
                        signer.name, signer.key
                    ))
                    .into());
            }
            None if keys.is_empty() && unsigned == UnsignedReleases::Refuse => {
                return Err(Failure::new(Class::Invalid, "the release would not be signed")
                    .because(anyhow::anyhow!("its own installer refuses unsigned releases, and the definition names no keys"))
                    .hint("To try it: --sign-with development. For others: `iso-builder keys new NAME`, then --sign-with NAME. \
                        Without signatures: `trust: {unsigned: allow}` in the definition.").into());
            }
            _ => {}
        }
        let threshold = self.threshold.map_or(1, NonZeroUsize::get);
        TrustStore::new(keys, threshold, unsigned)
            .class(Class::Invalid, || "making the trust store of the OS image".to_owned())
    }
}
