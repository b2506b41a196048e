//! Documents about a release that refer to its artifact: its provenance and its bill of materials (image-spec 1.1, "Guidelines for
//! Artifact Usage").

use base::digest::Digest;
use formats::oci::referrers::Referrer;
use formats::oci::{ArtifactManifest, Descriptor, media_types};

use crate::build_output::{PROVENANCE, SBOM};

/// The config of an artifact that has none.
pub const EMPTY_CONFIG: &[u8] = b"{}";
/// The annotation with the file name of a layer.
const TITLE: &str = "org.opencontainers.image.title";
/// The annotation with what a statement of in-toto states, as other programs look for it.
const PREDICATE: (&str, &str) = ("in-toto.io/predicate-type", "https://slsa.dev/provenance/v1");

/// A document about a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseDocument {
    Provenance,
    Sbom,
}

impl ReleaseDocument {
    pub const ALL: [Self; 2] = [Self::Provenance, Self::Sbom];

    /// The document that an artifact of this type is.
    #[must_use]
    pub fn of_type(artifact_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|document| document.artifact_type() == artifact_type)
    }

    #[must_use]
    pub fn artifact_type(self) -> &'static str {
        match self {
            Self::Provenance => "application/vnd.in-toto+json",
            Self::Sbom => "application/spdx+json",
        }
    }

    fn layer_type(self) -> &'static str {
        match self {
            Self::Provenance => "application/vnd.dsse.envelope.v1+json",
            Self::Sbom => self.artifact_type(),
        }
    }

    /// Its file beside a release.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Provenance => PROVENANCE,
            Self::Sbom => SBOM,
        }
    }

    /// The largest one that is read, in bytes.
    #[must_use]
    pub fn limit(self) -> u64 {
        match self {
            Self::Provenance => formats::dsse::MAX_ENVELOPE_BYTES,
            Self::Sbom => 64 << 20,
        }
    }

    /// The manifest of the artifact with the document `bytes` about the artifact `subject`.
    #[must_use]
    pub fn manifest(self, bytes: &[u8], subject: Descriptor) -> ArtifactManifest {
        let descriptor = |media_type: &str, bytes: &[u8]| Descriptor {
            media_type: media_type.to_owned(),
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            annotations: Default::default(),
            platform: None,
        };
        let mut layer = descriptor(self.layer_type(), bytes);
        layer.annotations.insert(TITLE.to_owned(), self.file().to_owned());
        let mut manifest =
            ArtifactManifest::new(descriptor(media_types::OCI_EMPTY, EMPTY_CONFIG), vec![layer]);
        manifest.artifact_type = Some(self.artifact_type().to_owned());
        manifest.subject = Some(subject);
        if self == Self::Provenance {
            manifest.annotations.insert(PREDICATE.0.to_owned(), PREDICATE.1.to_owned());
        }
        manifest
    }

    /// The entry of the artifact with the manifest `manifest`, whose bytes are `bytes`, in lists.
    #[must_use]
    pub fn referrer(self, manifest: &ArtifactManifest, bytes: &[u8]) -> Referrer {
        let manifest = Descriptor {
            media_type: media_types::OCI_MANIFEST.to_owned(),
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            annotations: manifest.annotations.clone(),
            platform: None,
        };
        Referrer { manifest, artifact_type: self.artifact_type().to_owned() }
    }
}
