//! Patches that a release offers beside its payloads: from the OS image of an earlier release to its own, both expanded, and from initrd
//! to initrd, both unpacked.
//!
//! They are made when a release is published, so `release.json` does not know of them, and its digest names the same release with and
//! without them. In a registry they are layers with an annotation ([`FROM`]), in a directory files that [`PATCHES`] lists. Nothing of
//! this is trusted: what is made with a patch is good if it has the root hash, or the digest, of the release manifest.

use base::digest::Digest;
use base::failure::{Class, Failure};
use base::size::ByteSize;
use formats::oci::Descriptor;
use model::release::{Payload, Purpose};
use serde::{Deserialize, Serialize};

/// The annotation of a layer that is a patch: what it starts from, as in [`ReleasePatch::from`].
pub const FROM: &str = "vnd.nqrust.patch.from";
/// The file beside `release.json` that lists the patches of a directory.
pub const PATCHES: &str = "patches.json";
/// How long that file may be, in bytes.
pub const LIST_LIMIT: u64 = 1 << 20;

/// A patch that makes a part of the release of the same part of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleasePatch {
    /// The base of the patch: the root hash of an expanded OS image, or the SHA-256 of an initrd.
    pub from: Digest,
    /// Path from the root of a directory with the release.
    pub path: String,
    /// In bytes.
    pub size: u64,
    pub sha256: Digest,
}

impl ReleasePatch {
    #[must_use]
    pub fn new(from: Digest, size: u64, sha256: Digest) -> Self {
        Self { from, path: format!("patches/{from}.patch"), size, sha256 }
    }

    /// The patch as a payload, as sources open it.
    #[must_use]
    pub fn payload(&self) -> Payload {
        let Self { path, size, sha256, .. } = self;
        Payload { path: path.clone(), purpose: Purpose::Patch, size: *size, sha256: *sha256 }
    }

    /// The patch of a layer of an artifact; none if the layer is not a patch.
    #[must_use]
    pub(crate) fn of_layer(layer: &Descriptor) -> Option<Self> {
        let from = layer.annotations.get(FROM)?.parse().ok()?;
        Some(Self::new(from, layer.size, layer.digest))
    }
}

/// The content of [`PATCHES`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchList {
    pub patches: Vec<ReleasePatch>,
}

impl PatchList {
    /// # Errors
    /// [`Class::Verification`] if it is no such list.
    pub fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let what = || Failure::new(Class::Verification, format!("reading {PATCHES}"));
        let list: Self = serde_json::from_slice(bytes).map_err(|error| what().because(error))?;
        for patch in &list.patches {
            if *patch != ReleasePatch::new(patch.from, patch.size, patch.sha256) {
                return Err(
                    what().because(anyhow::anyhow!("{:?} is not a valid path of a patch", patch.path))
                );
            }
            if patch.size > ByteSize::LARGEST_FILE.get() {
                let (path, size, limit) = (&patch.path, patch.size, ByteSize::LARGEST_FILE);
                return Err(what().because(anyhow::anyhow!("{path} has {size} bytes; the limit is {limit}")));
            }
        }
        Ok(list)
    }

    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers always become JSON.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_and_paths_elsewhere_are_refused() {
        let patch = ReleasePatch::new(Digest::of(b"old"), 5, Digest::of(b"patch"));
        let list = PatchList { patches: vec![patch.clone()] };
        assert_eq!(PatchList::parse(&list.to_bytes()).unwrap(), list);
        for path in ["../release.json", "/etc/passwd", "patches/other.patch"] {
            let list = PatchList { patches: vec![ReleasePatch { path: path.into(), ..patch.clone() }] };
            let error = PatchList::parse(&list.to_bytes()).unwrap_err();
            assert_eq!(error.class(), Class::Verification, "{path}");
        }
        for size in [ByteSize::LARGEST_FILE.get() + 1, u64::MAX] {
            let list = PatchList { patches: vec![ReleasePatch { size, ..patch.clone() }] };
            assert_eq!(
                PatchList::parse(&list.to_bytes()).unwrap_err().class(),
                Class::Verification,
                "{size}"
            );
        }
        assert!(PatchList::parse(b"{}").is_err());
    }
}
