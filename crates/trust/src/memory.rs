//! What a system remembers of trust beyond the release that it runs. It only grows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::revocations::Revocations;
use model::rollback_index::RollbackIndex;

/// What a node knows from all releases that it has had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustMemory {
    /// The lowest rollback index that a release may have.
    pub floor: RollbackIndex,
    /// What the trust stores of its releases have revoked.
    pub revoked: Revocations,
}

#[derive(Debug, thiserror::Error)]
#[error("it does not say what this node remembers: {0}")]
pub struct ParseTrustMemoryError(#[from] serde_json::Error);

impl TrustMemory {
    /// Reads the document.
    ///
    /// # Errors
    /// It is another one. A part that is missing is not taken for an empty one.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseTrustMemoryError> {
        Ok(serde_json::from_slice(bytes)?)
    }

    /// The document: indented JSON with a final newline. The same memory gives the same bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        (base::encode::json_text(self) + "\n").into_bytes()
    }

    /// This memory and `more`: the higher floor, and the revocations of both.
    #[must_use]
    pub fn joined(self, more: Self) -> Self {
        Self { floor: self.floor.max(more.floor), revoked: self.revoked.joined(more.revoked) }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A clause: `no release below the rollback index 2; 1 revoked key, 2 revoked releases`.
impl fmt::Display for TrustMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { floor, revoked: Revocations { keys, releases } } = self;
        let counted = |count: usize, noun: &str| {
            let plural = if count == 1 { "" } else { "s" };
            (count > 0).then(|| format!("{count} revoked {noun}{plural}"))
        };
        let floor = (!floor.is_zero()).then(|| format!("no release below the rollback index {floor}"));
        let revoked: Vec<_> =
            [counted(keys.len(), "key"), counted(releases.len(), "release")].into_iter().flatten().collect();
        let revoked = (!revoked.is_empty()).then(|| revoked.join(", "));
        f.write_str(&[floor, revoked].into_iter().flatten().collect::<Vec<_>>().join("; "))
    }
}
