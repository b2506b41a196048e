//! Debian packages as lists ask for them and as mirrors have them. The lock file keeps both; the steps resolve and unpack them.

use base::digest::Digest;
use serde::{Deserialize, Serialize};

/// A list of packages to be resolved together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PackageList {
    /// Whether Debian's essential packages belong to it.
    pub essential: bool,
    /// The packages.
    pub include: Vec<String>,
}

/// One package as its repository has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ResolvedPackage {
    /// File name, `NAME_VERSION_ARCHITECTURE.deb`.
    pub file: String,
    /// Where it is downloaded.
    pub url: String,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256.
    pub sha256: Digest,
}
