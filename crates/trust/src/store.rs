//! The keys that a system trusts: `trust.json` in the OS image.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::memory::TrustMemory;
use crate::revocations::Revocations;
use formats::minisign::{KeyId, PublicKey};
use model::config::{CustomizationPolicy, OwnerKey, Trust, UnsignedRelease};
use model::rollback_index::RollbackIndex;

/// Where an OS image has its trust store.
pub const TRUST_STORE: &str = "/usr/share/nqrust/trust.json";

/// The version of the document that this program writes and reads.
const FORMAT: u32 = 1;

/// A key, and what it is called wherever a release that it has signed is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedKey {
    pub name: String,
    pub key: PublicKey,
    /// True for a key of one machine, without a passphrase, to try things with. Everything that shows the release says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub development: bool,
}

/// `NAME (key ID)`, or `NAME (development key ID)`.
impl fmt::Display for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        named(f, &self.name, self.key.id(), self.development)
    }
}

pub(crate) fn named(f: &mut fmt::Formatter<'_>, name: &str, key: KeyId, development: bool) -> fmt::Result {
    let kind = if development { "development key" } else { "key" };
    write!(f, "{name} ({kind} {key})")
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustStore {
    format: u32,
    keys: Vec<TrustedKey>,
    /// How many different keys of these have to sign a release.
    threshold: usize,
    unsigned: UnsignedRelease,
    #[serde(default, skip_serializing_if = "Revocations::is_empty")]
    revoked: Revocations,
    /// Which customizations of media are used.
    #[serde(default, skip_serializing_if = "CustomizationPolicy::is_any")]
    customization: CustomizationPolicy,
    /// The lowest rollback index that a release may have. No document has it: a system remembers it.
    #[serde(skip)]
    floor: RollbackIndex,
}

#[derive(Debug, thiserror::Error)]
pub enum ParseTrustStoreError {
    #[error("it is not a trust store: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it has the format {0}, and this program reads {FORMAT}")]
    Format(u32),
    #[error("the key {0} is in it twice")]
    Twice(KeyId),
    #[error("{threshold} signatures are demanded, and there are {keys} keys")]
    Threshold { threshold: usize, keys: usize },
}

impl TrustStore {
    /// A store of `keys`, `threshold` of which have to sign.
    ///
    /// # Errors
    /// A key is there twice, or no release could have enough signatures.
    pub fn new(
        keys: Vec<TrustedKey>,
        threshold: usize,
        unsigned: UnsignedRelease,
    ) -> Result<Self, ParseTrustStoreError> {
        let mut known = BTreeSet::new();
        if let Some(twice) = keys.iter().find(|key| !known.insert(key.key.id())) {
            return Err(ParseTrustStoreError::Twice(twice.key.id()));
        }
        // Without keys, nothing but unsigned releases can be used, if those are.
        let most = keys.len().max(1);
        if threshold == 0 || threshold > most {
            return Err(ParseTrustStoreError::Threshold { threshold, keys: keys.len() });
        }
        let (revoked, customization, floor) = Default::default();
        Ok(Self { format: FORMAT, keys, threshold, unsigned, revoked, customization, floor })
    }

    /// The store of a system that has none: it knows no keys, and takes releases as they are.
    #[must_use]
    pub fn absent() -> Self {
        let (keys, revoked, customization, floor) = Default::default();
        let unsigned = UnsignedRelease::Allow;
        Self { format: FORMAT, keys, threshold: 1, unsigned, revoked, customization, floor }
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, ParseTrustStoreError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_slice(bytes)?;
        if format != FORMAT {
            return Err(ParseTrustStoreError::Format(format));
        }
        let Self { format: _, keys, threshold, unsigned, revoked, customization, floor: _ } =
            serde_json::from_slice(bytes)?;
        Ok(Self::new(keys, threshold, unsigned)?.revoking(revoked).customized_by(customization))
    }

    /// The same store, in which this is revoked.
    #[must_use]
    pub fn revoking(self, revoked: Revocations) -> Self {
        Self { revoked, ..self }
    }

    /// The same store with this rule for the customizations of media.
    #[must_use]
    pub fn customized_by(self, customization: CustomizationPolicy) -> Self {
        Self { customization, ..self }
    }

    /// Which customizations of media are used.
    #[must_use]
    pub fn customization(&self) -> CustomizationPolicy {
        self.customization
    }

    /// The store of a system that remembers `memory`: it revokes what was ever revoked there, and takes no release below the floor.
    #[must_use]
    pub fn remembering(self, memory: TrustMemory) -> Self {
        let TrustMemory { floor, revoked } =
            TrustMemory { floor: self.floor, revoked: self.revoked }.joined(memory);
        Self { floor, revoked, ..self }
    }

    #[must_use]
    pub fn revoked(&self) -> &Revocations {
        &self.revoked
    }

    /// The lowest rollback index that a release may have.
    #[must_use]
    pub fn floor(&self) -> RollbackIndex {
        self.floor
    }

    /// The document: indented JSON with a final newline. The same store gives the same bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        (base::encode::json_text(self) + "\n").into_bytes()
    }

    #[must_use]
    pub fn keys(&self) -> &[TrustedKey] {
        &self.keys
    }

    /// The trusted key with this id.
    #[must_use]
    pub fn key(&self, id: KeyId) -> Option<&TrustedKey> {
        self.keys.iter().find(|key| key.key.id() == id)
    }

    #[must_use]
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    #[must_use]
    pub fn unsigned(&self) -> UnsignedRelease {
        self.unsigned
    }

    /// The store of a system whose OS image has this one, and whose owner has `os.trust` in the configuration. Of a key that both
    /// have, the owner's name counts; it stays a development key if it is one. What the OS image revokes stays revoked.
    ///
    /// # Errors
    /// No release could have enough signatures.
    pub fn with_owner(self, owner: &Trust) -> Result<Self, ParseTrustStoreError> {
        let Trust { keys, replace, threshold, unsigned } = owner;
        let of_owner = |OwnerKey { name, key }: &OwnerKey| {
            let development = self.key(key.0.id()).is_some_and(|key| key.development);
            TrustedKey { name: name.as_str().to_owned(), key: key.0, development }
        };
        let owned: Vec<_> = keys.iter().map(of_owner).collect();
        let is_owned = |key: &TrustedKey| owned.iter().any(|owned| owned.key.id() == key.key.id());
        let of_image = self.keys.iter().filter(|key| !replace && !is_owned(key)).cloned();
        let keys = of_image.chain(owned.iter().cloned()).collect();
        let threshold =
            threshold.map_or(self.threshold, |threshold| usize::try_from(threshold).unwrap_or(usize::MAX));
        let unsigned = unsigned.unwrap_or(self.unsigned);
        let Self { revoked, customization, floor, .. } = self;
        Ok(Self { revoked, customization, floor, ..Self::new(keys, threshold, unsigned)? })
    }

    /// The same store for a person who has said that releases without a trusted signature may be used.
    #[must_use]
    pub fn allowing_unsigned(self, allowed: bool) -> Self {
        let unsigned = if allowed { UnsignedRelease::Allow } else { self.unsigned };
        Self { unsigned, ..self }
    }
}
