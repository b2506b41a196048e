//! `trust` of an image definition, and the trust store that goes into the OS image.

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use document::finding::Finding;
use document::format::{FormatFault, FormatResult, ensure};
use formats::minisign::{KeyId, ParsePublicKeyError, PublicKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::{Revocations, TrustStore, TrustedKey, UnsignedReleases};

/// Whose releases the nodes take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrustSpec {
    /// The public keys that sign releases. Without any, the key that signs the build is the only one.
    pub keys: Vec<KeySpec>,
    /// How many different keys of these have to sign a release: one, unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<usize>,
    /// What the nodes do with a release that is not signed so.
    pub unsigned: UnsignedSpec,
    /// What the nodes refuse from now on, whoever has signed it.
    #[serde(skip_serializing_if = "RevokedSpec::is_empty")]
    pub revoked: RevokedSpec,
}

/// Keys and releases that are taken back. Keep the list: a node follows that of the OS image that it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevokedSpec {
    /// The ids of keys that somebody else may have.
    pub keys: Vec<String>,
    /// The digests of the `release.json` of releases, as `iso-builder inspect` prints them.
    pub releases: Vec<String>,
}

impl RevokedSpec {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn read(&self) -> Result<Revocations> {
        let what = || "reading `trust.revoked` of the definition".to_owned();
        Ok(Revocations {
            keys: self
                .keys
                .iter()
                .map(|id| id.parse())
                .collect::<Result<_, _>>()
                .class(Class::Invalid, what)?,
            releases: self
                .releases
                .iter()
                .map(|digest| digest.parse())
                .collect::<Result<_, _>>()
                .class(Class::Invalid, what)?,
        })
    }
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

/// Checks the id of a key.
pub(crate) fn key_id(text: &str) -> FormatResult {
    let what = "is not the id of a key: sixteen hexadecimal digits, as `iso-builder keys show` prints it";
    ensure(text.parse::<KeyId>().is_ok(), what)
}

/// Checks the digest of a manifest.
pub(crate) fn release_digest(text: &str) -> FormatResult {
    let what =
        "is not the SHA-256 of a release.json: 64 hexadecimal digits, as `iso-builder inspect` prints it";
    ensure(text.parse::<Digest>().is_ok(), what)
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
        let revoked = |id: &KeyId| {
            self.revoked
                .keys
                .iter()
                .any(|revoked| revoked.parse::<KeyId>().is_ok_and(|revoked| revoked == *id))
        };
        for (index, spec) in self.keys.iter().enumerate() {
            if let Some(revoked) = id(spec).filter(revoked) {
                let message =
                    format!("the key {revoked} is in `trust.revoked.keys` too; leave it out of one of them");
                found.push(Finding::new(format!("trust.keys[{index}].key"), "revoked-key", message));
            }
        }
        let most = self.keys.len().max(1);
        if let Some(threshold) = self.threshold.filter(|threshold| *threshold == 0 || *threshold > most) {
            let message = match threshold {
                0 => "at least one key has to sign; `unsigned: allow` takes releases without signatures"
                    .to_owned(),
                _ => format!("{threshold} signatures are demanded, and {most} can be made"),
            };
            found.push(Finding::new("trust.threshold", "invalid-threshold", message));
        }
        found
    }

    /// The trust store of the OS image of a build that `signers` sign, if anybody does yet.
    ///
    /// # Errors
    /// [`Class::Invalid`] if the nodes of this build would refuse it: nobody signs it and unsigned releases are not allowed, or none of
    /// its keys is one of the definition.
    pub fn store(&self, signers: &[TrustedKey]) -> Result<TrustStore> {
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
        if keys.is_empty() {
            keys.extend(signers.iter().cloned());
        }
        let is_trusted = |signer: &&TrustedKey| keys.iter().any(|key| key.key == signer.key);
        if let Some(first) = signers.first().filter(|_| !signers.iter().any(|signer| is_trusted(&signer))) {
            let TrustedKey { name, key, .. } = first;
            let what =
                format!("the key {name} ({}) is not one of those that the definition trusts", key.id());
            let why = anyhow::anyhow!("nodes of this build would refuse their own release");
            let hint =
                format!("Sign with a key of `trust.keys`, or add this one: {{name: {name}, key: {key}}}");
            return Err(Failure::new(Class::Invalid, what).because(why).hint(hint).into());
        }
        if keys.is_empty() && unsigned == UnsignedReleases::Refuse {
            let why = "its own installer refuses unsigned releases, and the definition names no keys";
            let hint = "To try it: --sign-with development. For others: `iso-builder keys new NAME`, then --sign-with NAME. \
                Without signatures: `trust: {unsigned: allow}` in the definition.";
            return Err(Failure::new(Class::Invalid, "the release would not be signed")
                .because(anyhow::anyhow!(why))
                .hint(hint)
                .into());
        }
        let threshold = self.threshold.unwrap_or(1);
        let store = TrustStore::new(keys, threshold, unsigned)
            .class(Class::Invalid, || "making the trust store of the OS image".to_owned())?;
        Ok(store.revoking(self.revoked.read()?))
    }
}
