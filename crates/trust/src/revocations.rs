//! Keys and releases that were taken back.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use base::digest::Digest;
use formats::minisign::KeyId;

/// What must not be used any more, whoever has signed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Revocations {
    /// Signatures of these keys do not count, because somebody else may have them.
    pub keys: BTreeSet<KeyId>,
    /// The digests of the manifests of releases.
    pub releases: BTreeSet<Digest>,
}

impl Revocations {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These and `more`.
    #[must_use]
    pub fn joined(mut self, mut more: Self) -> Self {
        self.keys.append(&mut more.keys);
        self.releases.append(&mut more.releases);
        self
    }
}
