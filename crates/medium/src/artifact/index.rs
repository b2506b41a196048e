//! The index at a tag that has the release of one version for several architectures (image-spec 1.1, `image-index.md`). Each is an
//! artifact of its own; clients take the one of their platform.

use std::collections::BTreeMap;

use base::digest::Digest;
use formats::oci::{Descriptor, Platform, media_types};
use model::architecture::Architecture;
use serde_json::json;

/// The manifest of an artifact as an index names it.
#[must_use]
pub fn entry(digest: Digest, size: u64, architecture: Architecture) -> Descriptor {
    Descriptor {
        media_type: media_types::OCI_MANIFEST.into(),
        digest,
        size,
        annotations: BTreeMap::default(),
        platform: Some(Platform {
            architecture: architecture.debian().to_owned(),
            os: "linux".into(),
            variant: None,
        }),
    }
}

/// The index of these artifacts, one for each architecture. The same artifacts give the same bytes, in whatever order they come.
pub fn write(mut entries: Vec<Descriptor>) -> serde_json::Result<Vec<u8>> {
    let architecture =
        |entry: &Descriptor| entry.platform.as_ref().map(|platform| platform.architecture.clone());
    entries.sort_by_key(architecture);
    serde_json::to_vec(&json!({
        "schemaVersion": 2, "mediaType": media_types::OCI_INDEX, "manifests": entries,
    }))
}

#[cfg(test)]
mod tests {
    use formats::oci::ImageIndex;

    use super::*;

    #[test]
    fn each_architecture_finds_its_artifact_whatever_the_order() {
        let entries = Architecture::ALL
            .map(|architecture| entry(Digest::of(architecture.debian().as_bytes()), 7, architecture));
        let bytes = write(entries.to_vec()).unwrap();
        assert_eq!(write(entries.iter().rev().cloned().collect()).unwrap(), bytes);
        let index: ImageIndex = serde_json::from_slice(&bytes).unwrap();
        for (architecture, entry) in Architecture::ALL.into_iter().zip(&entries) {
            assert_eq!(index.choose(architecture.debian()), Some(entry));
        }
        assert_eq!(index.platforms(), ["linux/amd64", "linux/arm64"]);
    }
}
