//! Images of registries: which ones, at which digests, and their blobs in the cache.
//!
//! A tag is resolved once, into the lock file ([`resolve`]). From then on everything is requested by digest: the
//! documents ([`documents`]), then the blobs ([`blobs`]), each once however many images have it. [`cache`] keeps them
//! between builds.

mod blobs;
pub mod cache;
mod documents;

use std::io::Read;

use anyhow::Result;
use base::digest::Digest;
use formats::oci::{ImageReference, Repository};
use serde::{Deserialize, Serialize};
use transfer::registry::Client;

use super::blob::Blob;
pub use blobs::blobs;
pub use cache::BlobCache;
pub use documents::{documents, resolve};

/// How many images and blobs are transferred at the same time by default.
pub const DEFAULT_TRANSFERS: usize = 6;

/// An image of a registry with the digest that its reference was resolved to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedImage {
    /// As the definition, a list or a manifest names it.
    pub reference: ImageReference,
    /// The manifest or index that it pointed to when it was resolved.
    pub digest: Digest,
}

/// The registry that images are pulled from; tests replace it.
pub trait ImageRegistry: Sync {
    /// The bytes of the document that a reference points to. If the reference has a digest, the bytes have it.
    fn document(&self, reference: &ImageReference) -> Result<Vec<u8>>;

    /// A blob's bytes from `offset` on. The caller has to check them.
    fn blob(&self, repository: &Repository, blob: Blob, offset: u64) -> Result<Box<dyn Read + Send>>;
}

impl ImageRegistry for Client {
    fn document(&self, reference: &ImageReference) -> Result<Vec<u8>> {
        Ok(Client::document(self, reference)?.bytes)
    }

    fn blob(&self, repository: &Repository, blob: Blob, offset: u64) -> Result<Box<dyn Read + Send>> {
        Client::blob(self, repository, blob.digest, blob.size, offset)
    }
}

/// No registry: for builds that may use no network.
#[derive(Clone, Copy, Debug)]
pub struct OfflineRegistry;

impl ImageRegistry for OfflineRegistry {
    fn document(&self, _: &ImageReference) -> Result<Vec<u8>> {
        Err(offline("a manifest"))
    }

    fn blob(&self, _: &Repository, blob: Blob, _: u64) -> Result<Box<dyn Read + Send>> {
        Err(offline(&format!("the blob {}", blob.digest.oci())))
    }
}

fn offline(what: &str) -> anyhow::Error {
    use base::failure::{Class, Failure};
    Failure::new(
        Class::Network,
        format!("{what} is not in the cache, or damaged there, and --offline was given"),
    )
    .hint("Build once without --offline.")
    .into()
}

#[cfg(test)]
mod tests;
