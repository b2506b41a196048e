//! How far back a node may go in releases.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rollback index of a release, which its maker raises with one that mends a hole. A node remembers the lowest index of what can
/// still start on it, its floor, and takes no update below that. Zero is that of releases that say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct RollbackIndex(pub u32);

impl RollbackIndex {
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for RollbackIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
