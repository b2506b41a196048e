//! Manifests and indexes (image-spec 1.1, `manifest.md` and `image-index.md`; Docker's image manifest version 2,
//! schema 2).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::media_types;
use super::platform::Platform;
use base::digest::Digest;
use base::size::ByteSize;

/// Media types of manifests, ours and Docker's.
const MANIFESTS: [&str; 2] = [media_types::OCI_MANIFEST, media_types::DOCKER_MANIFEST];

/// Media types of indexes, ours and Docker's.
const INDEXES: [&str; 2] = [media_types::OCI_INDEX, media_types::DOCKER_INDEX];

/// A reference to a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default)]
    pub media_type: String,
    /// SHA-256 of the blob; other algorithms are not read.
    #[serde(with = "prefixed")]
    pub digest: Digest,
    /// The blob's length in bytes, at most [`ByteSize::LARGEST_FILE`].
    #[serde(deserialize_with = "blob_size")]
    pub size: u64,
    /// Annotations, such as the blob's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The platform of the image, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

/// Reads a length. Lengths are added up, which must not overflow.
fn blob_size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let size = u64::deserialize(deserializer)?;
    if size > ByteSize::LARGEST_FILE.get() {
        let why = format!("a blob of {size} bytes is too large; the limit is {}", ByteSize::LARGEST_FILE);
        return Err(serde::de::Error::custom(why));
    }
    Ok(size)
}

/// Digests as the specifications write them, `sha256:…`, for serde's attributes.
pub mod prefixed {
    use base::digest::Digest;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a digest with its prefix.
    pub fn serialize<S: Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&digest.oci())
    }

    /// Reads a digest, which must have its prefix.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("sha256:").and_then(|digits| digits.parse().ok());
        digits.ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not sha256: and 64 digits")))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageManifest {
    /// Its own media type; that of OCI where it does not say.
    #[serde(default = "oci_manifest")]
    pub media_type: String,
    pub config: Descriptor,
    /// The layers, lowest first.
    pub layers: Vec<Descriptor>,
}

/// The manifests of an image for several platforms.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageIndex {
    /// Its own media type; that of OCI where it does not say.
    #[serde(default = "oci_index")]
    pub media_type: String,
    /// The manifests; some may not be images (attestations).
    pub manifests: Vec<Descriptor>,
}

fn oci_manifest() -> String {
    MANIFESTS[0].to_owned()
}

fn oci_index() -> String {
    INDEXES[0].to_owned()
}

/// The document behind a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Manifest(ImageManifest),
    Index(ImageIndex),
}

#[derive(Debug, thiserror::Error)]
pub enum ParseDocumentError {
    /// Not JSON, or not of either shape.
    #[error("it is not the manifest of an image")]
    Json(#[from] serde_json::Error),
    /// Something else, for instance Docker's schema 1.
    #[error("its type {0:?} is neither an image manifest nor an index (OCI, or Docker's schema 2)")]
    Kind(String),
}

impl Document {
    /// Its own media type; that of OCI where it does not say.
    #[must_use]
    pub fn media_type(&self) -> &str {
        match self {
            Self::Manifest(manifest) => &manifest.media_type,
            Self::Index(index) => &index.media_type,
        }
    }

    /// Reads a document. `media_type` is the announced type; if that is empty or generic, the document's own `mediaType`
    /// decides, and otherwise its fields.
    pub fn parse(bytes: &[u8], media_type: &str) -> Result<Self, ParseDocumentError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct DocumentHead {
            #[serde(default)]
            schema_version: u32,
            #[serde(default)]
            media_type: String,
            #[serde(default)]
            manifests: Option<serde::de::IgnoredAny>,
        }
        let head: DocumentHead = serde_json::from_slice(bytes)?;
        let known = |kind: &&str| MANIFESTS.contains(kind) || INDEXES.contains(kind);
        // Generic types are ignored; any other announced type is trusted.
        let vague = |kind: &&str| {
            kind.is_empty() || matches!(*kind, "application/json" | "application/octet-stream" | "text/plain")
        };
        let said = [head.media_type.as_str(), media_type.split(';').next().unwrap_or_default().trim()];
        let said = said.into_iter().find(|kind| !vague(kind));
        if let Some(kind) = said.filter(|kind| !known(kind)) {
            return Err(ParseDocumentError::Kind(kind.to_owned()));
        }
        if head.schema_version != 2 {
            return Err(ParseDocumentError::Kind(format!("schema version {}", head.schema_version)));
        }
        match said.map_or(head.manifests.is_some(), |kind| INDEXES.contains(&kind)) {
            true => Ok(Self::Index(serde_json::from_slice(bytes)?)),
            false => Ok(Self::Manifest(serde_json::from_slice(bytes)?)),
        }
    }
}

impl Descriptor {
    #[must_use]
    pub fn is_index(&self) -> bool {
        INDEXES.contains(&self.media_type.as_str())
    }

    #[must_use]
    pub fn is_manifest(&self) -> bool {
        MANIFESTS.contains(&self.media_type.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn descriptor(media_type: &str, platform: Option<(&str, &str)>) -> serde_json::Value {
        let platform = platform.map(|(os, architecture)| json!({ "os": os, "architecture": architecture }));
        json!({ "mediaType": media_type, "digest": Digest::of(b"x").oci(), "size": 3, "platform": platform })
    }

    fn manifest(own: Option<&str>) -> Vec<u8> {
        let mut document =
            json!({ "schemaVersion": 2, "config": descriptor("c", None), "layers": [descriptor("l", None)] });
        if let Some(own) = own {
            document["mediaType"] = own.into();
        }
        serde_json::to_vec(&document).unwrap()
    }

    fn index(platforms: &[(&str, &str)]) -> Vec<u8> {
        let manifests: Vec<_> =
            platforms.iter().map(|platform| descriptor(MANIFESTS[0], Some(*platform))).collect();
        serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": manifests })).unwrap()
    }

    #[test]
    fn both_families_are_read_whoever_names_the_kind() {
        for kind in MANIFESTS {
            for (own, announced) in [(Some(kind), ""), (None, kind), (Some(kind), "application/json")] {
                assert!(
                    matches!(Document::parse(&manifest(own), announced), Ok(Document::Manifest(_))),
                    "{kind}"
                );
            }
        }
        for kind in INDEXES.into_iter().chain(["", "application/json; charset=utf-8"]) {
            assert!(matches!(Document::parse(&index(&[]), kind), Ok(Document::Index(_))), "{kind}");
        }
    }

    #[test]
    fn digests_are_written_as_they_are_read() {
        let text = serde_json::to_string(&descriptor("x", Some(("linux", "amd64")))).unwrap();
        let read: Descriptor = serde_json::from_str(&text).unwrap();
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            serde_json::from_str::<serde_json::Value>(&text).unwrap()
        );
        assert!(serde_json::from_str::<Descriptor>(&text.replace("sha256:", "")).is_err());
        let large = serde_json::from_str::<Descriptor>(&text.replace(":3", ":18446744073709551615"));
        assert!(large.unwrap_err().to_string().contains("too large; the limit is"));
    }

    #[test]
    fn other_kinds_are_named_in_the_error() {
        let one = br#"{"schemaVersion": 1, "fsLayers": []}"#;
        assert!(Document::parse(one, "").unwrap_err().to_string().contains("schema version 1"));
        let helm = "application/vnd.cncf.helm.config.v1+json";
        assert!(Document::parse(&manifest(Some(helm)), "").unwrap_err().to_string().contains(helm));
        for bytes in [&b""[..], b"[]", b"{", br#"{"schemaVersion": 2}"#, b"<html>"] {
            assert!(Document::parse(bytes, "").is_err());
        }
    }
}
