//! Images in OCI form: a layout's `index.json`, and blobs that are copied unchanged.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files;
use formats::oci::{
    Descriptor, Document, ImageReference, Platform, ResolveImageError, ResolvedImage, media_types,
    resolve_image,
};

use super::super::blob::Blob;
use super::super::store::Store;
use super::super::stored_image::{ImageDocument, StoredImage};
use super::blobs::{BlobSource, compare, copy};
use super::choose::{CandidateName, ChosenImages, ImageCandidate, choose, retain_platform};
use super::source::{ImageImport, ImportedImages, MAX_DOCUMENT_BYTES};

/// The annotations with an image's name: that of containerd and Docker, and that of all other tools. Docker writes only
/// the tag into the second.
const NAME_ANNOTATIONS: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// The media types of container images' configurations; layouts may also hold other artifacts.
const CONFIG_MEDIA_TYPES: [&str; 2] = [media_types::OCI_CONFIG, media_types::DOCKER_CONFIG];

/// Imports the images that `index` (an `index.json`) lists and `import` selects.
pub(super) fn take(
    import: &ImageImport<'_>,
    index: &[u8],
    blobs: &mut dyn BlobSource,
    store: &Store,
) -> Result<ImportedImages> {
    let (chosen, notes) = chosen(import, index)?;
    let mut layout = Layout { import, blobs, store };
    let images = chosen.into_iter().map(|chosen| layout.image(chosen)).collect::<Result<_>>()?;
    Ok(ImportedImages { images, notes })
}

pub(super) fn names(import: &ImageImport<'_>, index: &[u8]) -> Result<Vec<ImageReference>> {
    Ok(chosen(import, index)?.0.into_iter().map(|chosen| chosen.name).collect())
}

/// The images of `index` that `import` selects, and notes about those that are left out.
fn chosen(import: &ImageImport<'_>, index: &[u8]) -> Result<(Vec<ChosenImages<Descriptor>>, Vec<String>)> {
    let index = match Document::parse(index, "") {
        Ok(Document::Index(index)) => index,
        Ok(Document::Manifest(_)) => return Err(import.refuse("its index.json is not an index")),
        Err(error) => return Err(import.refuse(&format!("reading its index.json: {:#}", anyhow!(error)))),
    };
    // Attestations have the platform `unknown`.
    let real = |descriptor: &Descriptor| {
        descriptor.platform.as_ref().is_none_or(|platform| platform.os != "unknown")
    };
    let candidates = index.manifests.into_iter().filter(real).map(candidate).collect();
    choose(candidates, import.references).map_err(|why| import.refuse(&why))
}

fn candidate(descriptor: Descriptor) -> ImageCandidate<Descriptor> {
    let mut names = NAME_ANNOTATIONS.iter().filter_map(|key| descriptor.annotations.get(*key));
    let name =
        names.next().map_or_else(|| CandidateName::None(String::new()), |text| CandidateName::of(text));
    ImageCandidate { name, digest: Some(descriptor.digest), what: descriptor }
}

struct Layout<'a, 'b> {
    import: &'a ImageImport<'a>,
    blobs: &'b mut dyn BlobSource,
    store: &'a Store,
}

impl Layout<'_, '_> {
    fn image(&mut self, chosen: ChosenImages<Descriptor>) -> Result<StoredImage> {
        let what = format!("taking the image {} from {}", chosen.name, self.import.path.display());
        self.resolve(chosen).class(Class::Invalid, || what)
    }

    fn resolve(&mut self, chosen: ChosenImages<Descriptor>) -> Result<StoredImage> {
        let top = self.one(chosen.images)?;
        let top = self.document(&top)?;
        let architecture = self.import.architecture;
        let resolved = resolve_image(top, architecture, |descriptor| self.document(descriptor));
        let ResolvedImage { indexes, manifest, document, siblings } =
            resolved.map_err(|error| match error {
                ResolveImageError::Platform { platforms, .. } => self.other_platform(&platforms),
                ResolveImageError::Read(error) => error,
                ResolveImageError::Depth | ResolveImageError::Siblings => error.into(),
            })?;
        if !manifest.config.media_type.is_empty()
            && !CONFIG_MEDIA_TYPES.contains(&manifest.config.media_type.as_str())
        {
            let why = format!(
                "it is not a container image: its configuration is of the type {}",
                manifest.config.media_type
            );
            return Err(Failure::new(Class::Invalid, why).hint("Leave it out of the references.").into());
        }
        let config = self.placed(&manifest.config)?;
        self.check_platform(&config)?;
        let layers = manifest.layers.iter().map(|layer| self.placed(layer)).collect::<Result<_>>()?;
        let roles = self.import.roles.to_vec();
        let siblings = siblings.into_iter().map(|sibling| sibling.blob).collect();
        Ok(StoredImage { name: chosen.name, roles, indexes, manifest: document, siblings, config, layers })
    }

    /// The image for the platform among several of one name.
    fn one(&self, mut images: Vec<Descriptor>) -> Result<Descriptor> {
        let platforms: Vec<_> = images.iter().filter_map(|image| image.platform.clone()).collect();
        retain_platform(&mut images, self.import.architecture);
        if images.is_empty() {
            return Err(self.other_platform(&platforms.iter().map(ToString::to_string).collect::<Vec<_>>()));
        }
        images.dedup_by_key(|image| image.digest);
        match <[Descriptor; 1]>::try_from(images) {
            Ok([image]) => Ok(image),
            Err(images) => {
                let digests: Vec<String> = images.iter().map(|image| image.digest.oci()).collect();
                let why = format!("{} images have this name: {}", digests.len(), digests.join(", "));
                let hint = "Choose one of them by its digest: REPOSITORY@sha256:…";
                Err(Failure::new(Class::Invalid, why).hint(hint).into())
            }
        }
    }

    fn other_platform(&self, there: &[String]) -> anyhow::Error {
        let platform = format!("linux/{}", self.import.architecture);
        let there = if there.is_empty() { "none that is named".to_owned() } else { there.join(", ") };
        Failure::new(Class::Invalid, format!("it is not for {platform}; its platforms are: {there}"))
            .hint("Copy the image of that platform: skopeo copy --override-os linux --override-arch …")
            .into()
    }

    fn check_platform(&self, config: &Blob) -> Result<()> {
        let platform =
            serde_json::from_slice::<Platform>(&self.bytes(config)?).context("reading its configuration")?;
        match platform.is_of(self.import.architecture) {
            true => Ok(()),
            false => Err(self.other_platform(&[platform.to_string()])),
        }
    }

    fn document(&mut self, descriptor: &Descriptor) -> Result<(Document, ImageDocument)> {
        let blob = self.placed(descriptor)?;
        let document = Document::parse(&self.bytes(&blob)?, &descriptor.media_type);
        let document = document.with_context(|| format!("reading {}", descriptor.digest.oci()))?;
        let is_known = descriptor.is_index() || descriptor.is_manifest();
        let media_type = if is_known { &descriptor.media_type } else { document.media_type() }.to_owned();
        Ok((document, ImageDocument { media_type, blob }))
    }

    fn bytes(&self, blob: &Blob) -> Result<Vec<u8>> {
        files::read_at_most(&self.store.blob_path(blob.digest), MAX_DOCUMENT_BYTES)
    }

    fn placed(&mut self, descriptor: &Descriptor) -> Result<Blob> {
        let hint = "Make the archive or layout again, for instance with `skopeo copy`, or download it again.";
        self.blobs.place(descriptor).map_err(|error| match base::failure::class_of(&error) {
            Class::Verification => {
                let what = format!("the blob {} is damaged or missing", descriptor.digest.oci());
                let source = error.reallocate_into_boxed_dyn_error_without_backtrace();
                Failure::new(Class::Verification, what).because(source).hint(hint).into()
            }
            _ => error,
        })
    }
}

#[allow(missing_debug_implementations)]
pub(super) struct LayoutDirectory<'a> {
    root: &'a Path,
    store: &'a Store,
    placed: HashSet<Digest>,
    on_bytes: &'a mut dyn FnMut(u64),
}

impl<'a> LayoutDirectory<'a> {
    pub(super) fn new(root: &'a Path, store: &'a Store, on_bytes: &'a mut dyn FnMut(u64)) -> Self {
        Self { root, store, placed: HashSet::new(), on_bytes }
    }
}

impl BlobSource for LayoutDirectory<'_> {
    fn place(&mut self, descriptor: &Descriptor) -> Result<Blob> {
        let blob = Blob { digest: descriptor.digest, size: descriptor.size };
        if self.placed.contains(&blob.digest) {
            return Ok(blob);
        }
        let path = self.root.join("blobs/sha256").join(descriptor.digest.to_string());
        if !path.is_file() {
            return Err(
                Failure::new(Class::Verification, format!("there is no file {}", path.display())).into()
            );
        }
        let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        // Reading one byte more than the descriptor says shows that the blob is too long, however long it is.
        let loose = copy(file.take(descriptor.size.saturating_add(1)), self.store)?;
        (self.on_bytes)(loose.blob().size);
        compare(descriptor, loose.blob())?;
        self.placed.insert(blob.digest);
        loose.place(self.store)
    }
}
