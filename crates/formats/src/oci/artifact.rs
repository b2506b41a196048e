//! Manifests of artifacts that are not container images (image-spec 1.1, "Guidelines for Artifact Usage").

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::document::{Descriptor, ParseDocumentError};
use super::media_types;

/// The manifest of an artifact: one document, and blobs of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactManifest {
    schema_version: u32,
    #[serde(default = "oci_manifest")]
    media_type: String,
    /// The type of the artifact; registries from before the specification 1.1 may refuse this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    pub config: Descriptor,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
    /// The manifest that it refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

fn oci_manifest() -> String {
    media_types::OCI_MANIFEST.to_owned()
}

impl ArtifactManifest {
    #[must_use]
    pub fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        let (artifact_type, subject, annotations) = (None, None, BTreeMap::new());
        let media_type = oci_manifest();
        Self { schema_version: 2, media_type, artifact_type, config, layers, subject, annotations }
    }

    /// Reads a manifest; that of a container image is one too.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseDocumentError> {
        let manifest: Self = serde_json::from_slice(bytes)?;
        let known = [media_types::OCI_MANIFEST, media_types::DOCKER_MANIFEST];
        match manifest.schema_version == 2 && known.contains(&manifest.media_type.as_str()) {
            true => Ok(manifest),
            false => Err(ParseDocumentError::Kind(manifest.media_type)),
        }
    }

    /// The same manifest gives the same bytes.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::Digest;

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_an_index_is_none() {
        let descriptor = |kind: &str| Descriptor {
            media_type: kind.into(),
            digest: Digest::of(b"x"),
            size: 1,
            annotations: BTreeMap::new(),
            platform: None,
        };
        let mut manifest = ArtifactManifest::new(descriptor("a/b"), vec![descriptor("c/d")]);
        manifest.artifact_type = Some("a/b".into());
        manifest.subject = Some(descriptor("e/f"));
        manifest.annotations.insert("k".into(), "v".into());
        let bytes = manifest.to_bytes().unwrap();
        assert_eq!(ArtifactManifest::parse(&bytes).unwrap(), manifest);
        for other in [
            r#"{"schemaVersion": 2, "manifests": []}"#.to_owned(),
            String::from_utf8(bytes).unwrap().replace("image.manifest.v1", "image.index.v1"),
        ] {
            assert!(ArtifactManifest::parse(other.as_bytes()).is_err(), "{other}");
        }
    }
}
