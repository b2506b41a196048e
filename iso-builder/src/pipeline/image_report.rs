//! The report of a container image that was written as a layout.

use std::fmt;
use std::path::{Path, PathBuf};

use base::digest::Digest;
use base::size::ByteSize;
use formats::oci::ImageReference;
use serde::Serialize;

use crate::images::stored_image::StoredImage;

#[derive(Clone, Debug, Serialize)]
pub struct ImageReport {
    pub name: String,
    /// Of the manifest.
    pub digest: Digest,
    /// Bytes of all blobs.
    pub size: u64,
    /// The directory that is the OCI image layout.
    pub layout: PathBuf,
    /// The bill of materials of the builder's image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sbom: Option<PathBuf>,
}

impl ImageReport {
    pub(super) fn of(name: &ImageReference, image: &StoredImage, layout: &Path) -> Self {
        Self {
            name: name.to_string(),
            digest: image.target().blob.digest,
            size: image.blobs().map(|blob| blob.size).sum(),
            layout: layout.to_owned(),
            sbom: None,
        }
    }
}

impl fmt::Display for ImageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, digest, size, layout, .. } = self;
        write!(f, "{name}@{}  {}  {}", digest.oci(), ByteSize::bytes(*size), layout.display())
    }
}
