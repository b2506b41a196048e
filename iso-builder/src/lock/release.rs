//! The release of the Kubernetes distribution in the lock file.

use std::collections::BTreeMap;

use base::digest::Digest;
use model::architecture::Architecture;
use model::config::Distribution;
use serde::{Deserialize, Serialize};

use crate::kubernetes::Kubernetes;
use crate::kubernetes::texts::Artifacts;
use model::kubernetes::KubernetesVersion;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedRelease {
    pub distribution: Distribution,
    pub version: KubernetesVersion,
    pub artifacts: Artifacts,
    /// Sorted by name.
    pub files: Vec<ReleaseFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseFile {
    pub name: String,
    pub sha256: Digest,
}

impl LockedRelease {
    /// The release of a definition; `digests` are those of its files, by name.
    pub(crate) fn new(
        spec: &Kubernetes,
        architecture: Architecture,
        digests: BTreeMap<String, Digest>,
    ) -> Self {
        let files = digests.into_iter().map(|(name, sha256)| ReleaseFile { name, sha256 }).collect();
        let (distribution, version) = (spec.distribution, spec.version.clone());
        Self { distribution, version, artifacts: spec.artifacts(architecture), files }
    }

    /// True if this locks exactly what `spec` asks for.
    pub(crate) fn fits(&self, spec: &Kubernetes, architecture: Architecture, names: &[String]) -> bool {
        let own: Vec<_> = self.files.iter().map(|file| &file.name).collect();
        (self.distribution, &self.version, &self.artifacts)
            == (spec.distribution, &spec.version, &spec.artifacts(architecture))
            && own == names.iter().collect::<Vec<_>>()
    }
}
