//! The documents that references point to.

use anyhow::{Context, Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files::read_at_most;
use base::progress::Progress;
use formats::oci::{
    Descriptor, Document, ImageManifest, ImageReference, Platform, Repository, ResolveImageError,
    ResolvedImage, resolve_image,
};

use super::super::blob::Blob;
use super::super::stored_image::{ImageDocument, StoredImage};
use super::{BlobCache, ImageRegistry, PinnedImage, blobs};
use base::parallel;

/// In bytes. No index or manifest of a sane image is larger; registries allow 4 MiB.
const MAX_DOCUMENT_BYTES: u64 = 4 << 20;

/// Asks the registries for the current digests of `references`. Those with a digest are not asked for.
pub fn resolve(
    references: &[ImageReference],
    registry: &dyn ImageRegistry,
    cache: &BlobCache,
    transfers: usize,
    progress: &Progress,
) -> Result<Vec<PinnedImage>> {
    let one = |reference: &ImageReference| -> Result<PinnedImage> {
        let digest = match reference.digest() {
            Some(digest) => digest,
            None => {
                let bytes = registry.document(reference).with_context(|| format!("resolving {reference}"))?;
                cache.keep(&bytes)?.digest
            }
        };
        Ok(PinnedImage { reference: reference.clone(), digest })
    };
    if references.is_empty() {
        return Ok(Vec::new());
    }
    let message = format!("Resolving {} container images", references.len());
    let mut pinned =
        progress.within("resolve-images", message, || parallel::map(references, transfers, one))?;
    pinned.sort();
    Ok(pinned)
}

/// The images with the names of all their blobs, for Linux on `architecture`; their documents are in the cache
/// afterwards. In the order of `images`, without roles.
pub fn documents(
    images: &[PinnedImage],
    architecture: &str,
    registry: &dyn ImageRegistry,
    cache: &BlobCache,
    transfers: usize,
) -> Result<Vec<StoredImage>> {
    parallel::map(images, transfers, |pinned| {
        Documents { registry, cache, architecture }
            .image(pinned)
            .with_context(|| format!("pulling {}", pinned.reference))
    })
}

struct Documents<'a> {
    registry: &'a dyn ImageRegistry,
    cache: &'a BlobCache,
    architecture: &'a str,
}

impl Documents<'_> {
    fn image(&self, pinned: &PinnedImage) -> Result<StoredImage> {
        let repository = pinned.reference.repository();
        let top = self.document(repository, pinned.digest)?;
        let read = |descriptor: &Descriptor| self.document(repository, descriptor.digest);
        let resolved = resolve_image(top, self.architecture, read).map_err(|error| match error {
            ResolveImageError::Platform { platforms, .. } => self.no_platform(&platforms),
            ResolveImageError::Read(error) => error,
            ResolveImageError::Depth | ResolveImageError::Siblings => unusable(pinned.digest, error.into()),
        })?;
        let ResolvedImage { indexes, manifest, document, siblings } = resolved;
        let ImageManifest { config, layers, .. } = manifest;
        let named = |descriptor: &Descriptor| Blob { digest: descriptor.digest, size: descriptor.size };
        self.check_platform(pinned, named(&config))?;
        Ok(StoredImage {
            name: pinned.reference.clone(),
            roles: Vec::new(),
            indexes,
            manifest: document,
            siblings: siblings.into_iter().map(|sibling| sibling.blob).collect(),
            config: named(&config),
            layers: layers.iter().map(named).collect(),
        })
    }

    /// A document by its digest, from the cache or else the registry.
    fn document(&self, repository: &Repository, digest: Digest) -> Result<(Document, ImageDocument)> {
        let held = self.cache.document(digest, MAX_DOCUMENT_BYTES);
        let bytes = held.map_or_else(|| self.registry.document(&repository.with_digest(digest)), Ok)?;
        let blob = Blob { digest: Digest::of(&bytes), size: bytes.len() as u64 };
        if blob.digest != digest {
            let why = anyhow!("the registry sent other content, with SHA-256 {}", blob.digest);
            return Err(Failure::new(
                Class::Verification,
                format!("the manifest {} is damaged", digest.oci()),
            )
            .because(why)
            .hint("The registry, or a proxy in front of it, damages data; try another mirror.")
            .into());
        }
        let document = Document::parse(&bytes, "").map_err(|error| unusable(digest, error.into()))?;
        self.cache.keep(&bytes)?;
        let media_type = document.media_type().to_owned();
        Ok((document, ImageDocument { media_type, blob }))
    }

    /// Checks by its configuration that the image is for the platform: an index may not say, and not every image has
    /// one.
    fn check_platform(&self, pinned: &PinnedImage, config: Blob) -> Result<()> {
        if !self.cache.holds(config)? {
            blobs::one(config, &[&pinned.reference], self.registry, self.cache, &mut |_| ())?;
        }
        let bytes = read_at_most(&self.cache.path(config.digest), MAX_DOCUMENT_BYTES)?;
        let platform: Platform =
            serde_json::from_slice(&bytes).map_err(|error| unusable(config.digest, error.into()))?;
        match platform.is_of(self.architecture) {
            true => Ok(()),
            false => Err(self.no_platform(&[platform.to_string()])),
        }
    }

    fn no_platform(&self, there: &[String]) -> anyhow::Error {
        let what = format!("there is no image for linux/{}", self.architecture);
        Failure::new(Class::Invalid, what)
            .because(anyhow!(
                "there is one for {}",
                if there.is_empty() { "no platform that it names".into() } else { there.join(", ") }
            ))
            .hint("Name an image that is published for this platform.")
            .into()
    }
}

fn unusable(digest: Digest, error: anyhow::Error) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("the document that it points to ({}) cannot be used", digest.oci()))
        .because(error)
        .hint("Name the image of a container, not an artifact of another kind.")
        .into()
}
