//! The release of the Kubernetes distribution, as the lock file has it.

use std::collections::BTreeMap;

use base::digest::Digest;
use model::config::Distribution;
use serde::{Deserialize, Serialize};

use crate::kubernetes::spec::Artifacts;
use crate::kubernetes::{Kubernetes, Version};

/// A release as the lock has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedRelease {
    /// Whose release.
    pub distribution: Distribution,
    /// Which.
    pub version: Version,
    /// Where its files are.
    pub artifacts: Artifacts,
    /// The files, by name.
    pub files: Vec<ReleaseFile>,
}

/// A file of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseFile {
    /// Its name.
    pub name: String,
    /// Its digest.
    pub sha256: Digest,
}

impl LockedRelease {
    /// The release of a definition, whose files have these digests.
    pub(crate) fn new(spec: &Kubernetes, digests: BTreeMap<String, Digest>) -> Self {
        let files = digests.into_iter().map(|(name, sha256)| ReleaseFile { name, sha256 }).collect();
        let (distribution, version) = (spec.distribution, spec.version.clone());
        Self { distribution, version, artifacts: spec.artifacts(), files }
    }

    /// Whether this is a lock of just what `spec` asks for.
    pub(crate) fn fits(&self, spec: &Kubernetes, names: &[String]) -> bool {
        let own: Vec<_> = self.files.iter().map(|file| &file.name).collect();
        (self.distribution, &self.version, &self.artifacts)
            == (spec.distribution, &spec.version, &spec.artifacts())
            && own == names.iter().collect::<Vec<_>>()
    }
}
