//! `trust` of an image definition, and the trust store that goes into the OS image.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use document::finding::Finding;
use document::format::{FormatResult, ensure};
use formats::minisign::KeyId;
use model::config::{CustomizationPolicy, OwnerKey, UnsignedRelease};
use model::rollback_index::RollbackIndex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trust::{Revocations, TrustStore, TrustedKey};

use super::revocation_list;

/// Whose releases the nodes take.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrustSpec {
    /// The public keys that sign releases. Without any, the key that signs the build is the only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<OwnerKey>,
    /// How many different keys of these have to sign a release: one, unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<usize>,
    /// What the nodes do with a release that is not signed so: they refuse it, unless set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsigned: Option<UnsignedRelease>,
    /// Raise it with a release that mends a hole: once a node has nothing older left to start, it refuses every release with a lower
    /// index, whoever has signed it.
    #[serde(skip_serializing_if = "RollbackIndex::is_zero")]
    pub rollback_index: RollbackIndex,
    /// Which customizations of media their installs use: any, unless set.
    #[serde(skip_serializing_if = "CustomizationPolicy::is_any")]
    pub customization: CustomizationPolicy,
    /// What the nodes refuse from now on, whoever has signed it.
    #[serde(skip_serializing_if = "RevokedSpec::is_empty")]
    pub revoked: RevokedSpec,
}

/// Keys and releases that are taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevokedSpec {
    /// A file with more of both, which `iso-builder keys revoke` writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<PathBuf>,
    /// The ids of keys that somebody else may have.
    pub keys: Vec<String>,
    /// The digests of the `release.json` of releases, as `iso-builder inspect` prints them.
    pub releases: Vec<String>,
}

impl RevokedSpec {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All that is revoked, also by the list, whose path `resolve` makes relative to the current directory.
    ///
    /// # Errors
    /// Those of [`revocation_list::read`].
    pub fn read(&self, resolve: &dyn Fn(&Path) -> PathBuf) -> Result<Revocations> {
        let listed = self.list.as_ref().map(|list| revocation_list::read(&resolve(list))).transpose()?;
        let what = || "reading `trust.revoked` of the definition".to_owned();
        let keys = self.keys.iter().map(|id| id.parse()).collect::<Result<_, _>>();
        let releases = self.releases.iter().map(|digest| digest.parse()).collect::<Result<_, _>>();
        let written = Revocations {
            keys: keys.class(Class::Invalid, what)?,
            releases: releases.class(Class::Invalid, what)?,
        };
        Ok(written.joined(listed.unwrap_or_default()))
    }
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
        let revoked: BTreeSet<KeyId> = self.revoked.keys.iter().filter_map(|id| id.parse().ok()).collect();
        let mut known = BTreeSet::new();
        for (index, OwnerKey { key, .. }) in self.keys.iter().enumerate() {
            let (id, at) = (key.0.id(), format!("trust.keys[{index}].key"));
            if !known.insert(id) {
                found.push(Finding::new(&at, "duplicate-key", format!("the key {id} is in the list twice")));
            }
            if revoked.contains(&id) {
                let message =
                    format!("the key {id} is in `trust.revoked.keys` too; leave it out of one of them");
                found.push(Finding::new(at, "revoked-key", message));
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

    /// The trust store of the OS image of a build that `signers` sign, if anybody does yet, and that revokes `revoked`.
    ///
    /// # Errors
    /// [`Class::Invalid`] if the nodes of this build would refuse it: nobody signs it and unsigned releases are not allowed, or none of
    /// its keys is one of the definition; and if a trusted key is revoked.
    pub fn store(&self, signers: &[TrustedKey], revoked: Revocations) -> Result<TrustStore> {
        let unsigned = self.unsigned.unwrap_or(UnsignedRelease::Refuse);
        let trusted = |OwnerKey { name, key }: &OwnerKey| TrustedKey {
            name: name.as_str().to_owned(),
            key: key.0,
            development: false,
        };
        let mut keys: Vec<_> = self.keys.iter().map(trusted).collect();
        if keys.is_empty() {
            keys.extend(signers.iter().cloned());
        }
        if let Some(key) = keys.iter().find(|key| revoked.keys.contains(&key.key.id())) {
            return Err(Failure::new(Class::Invalid, format!("the key {key} is trusted and revoked"))
                .because(anyhow::anyhow!("`trust.revoked` has it, and nodes would not count its signatures"))
                .hint("Leave it out of `trust.keys`, and name another key that signs.")
                .into());
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
        if keys.is_empty() && unsigned == UnsignedRelease::Refuse {
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
        Ok(store.revoking(revoked).customized_by(self.customization))
    }
}
