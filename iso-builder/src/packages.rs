//! Debian packages as lists ask for them and as mirrors have them. The lock file keeps both; the steps resolve and unpack them.

use std::collections::BTreeSet;

use base::digest::Digest;
use serde::{Deserialize, Serialize};

/// The name of a package that is written as apt takes it, `NAME`, `NAME=VERSION` or `NAME/RELEASE`.
#[must_use]
pub fn plain_name(package: &str) -> &str {
    package.split(['=', '/']).next().unwrap_or(package)
}

/// A list of packages to be resolved together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PackageList {
    /// True if Debian's essential packages belong to it.
    pub essential: bool,
    pub include: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResolvedPackage {
    /// `NAME_VERSION_ARCHITECTURE.deb`.
    pub file: String,
    pub url: String,
    /// In bytes.
    pub size: u64,
    pub sha256: Digest,
    /// The lists that it was chosen for, by their places among those of the request. Empty in lock files of earlier versions, which did
    /// not tell: it counts for each list then.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub lists: BTreeSet<usize>,
}
