//! An image in a store: its name, and the blobs of its documents and layers.

use formats::oci::{Descriptor, ImageReference};
use model::config::Role;
use serde::{Deserialize, Serialize};

use super::blob::Blob;

/// An image whose blobs are all in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    pub name: ImageReference,
    /// The roles whose nodes need it; empty means every role.
    pub roles: Vec<Role>,
    /// The index that the reference points to, and those inside it on the way to the manifest; empty where it points to the
    /// manifest. Of what an index lists the store has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<ImageDocument>,
    pub manifest: ImageDocument,
    /// Other manifests of the indexes for the same platform: containerd reads them while it imports the image, and nothing that
    /// they name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<Blob>,
    pub config: Blob,
    /// Lowest first.
    pub layers: Vec<Blob>,
}

/// A document that a reference or an index points to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageDocument {
    pub media_type: String,
    pub blob: Blob,
}

impl StoredImage {
    /// True if nodes of this role get the image.
    #[must_use]
    pub fn is_for(&self, role: Role) -> bool {
        self.roles.is_empty() || self.roles.contains(&role)
    }

    /// The document that the reference points to.
    #[must_use]
    pub fn target(&self) -> &ImageDocument {
        self.indexes.first().unwrap_or(&self.manifest)
    }

    /// Every name under which a node looks for the image.
    #[must_use]
    pub fn names(&self) -> Vec<ImageReference> {
        self.name.names_on_nodes(self.target().blob.digest)
    }

    /// How many of [`Self::blobs`] are documents; they come first.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.indexes.len() + 1 + self.siblings.len()
    }

    /// All blobs in the order in which a reader needs them: indexes, manifest, siblings, configuration, layers.
    pub fn blobs(&self) -> impl Iterator<Item = Blob> {
        let targets = self.indexes.iter().chain([&self.manifest]).map(|target| target.blob);
        targets.chain(self.siblings.iter().copied()).chain([self.config]).chain(self.layers.iter().copied())
    }
}

pub(super) fn descriptor(media_type: &str, blob: Blob) -> Descriptor {
    Descriptor {
        media_type: media_type.into(),
        digest: blob.digest,
        size: blob.size,
        annotations: std::collections::BTreeMap::new(),
        platform: None,
    }
}
