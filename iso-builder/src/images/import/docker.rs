//! Images in Docker's form (`docker save`): `manifest.json`, configurations, and layers as tar streams.
//!
//! Such images have no OCI manifest, so one is made. The configuration stays unchanged, and with it the image's id; its
//! `diff_ids` are the digests of the layers.

use anyhow::{Context, Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files;
use formats::oci::{ImageReference, Platform, media_types};
use serde::Deserialize;

use super::super::image::write_manifest;
use super::super::store::Store;
use super::super::stored_image::{StoredImage, descriptor};
use super::choose::{CandidateName, ChosenImages, ImageCandidate, choose};
use super::source::{ImageImport, ImportedImages, MAX_DOCUMENT_BYTES};
use super::spool::Spool;

/// One image of `manifest.json`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ManifestItem {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

/// The fields of a configuration that are used here.
#[derive(Deserialize)]
struct Configuration {
    #[serde(flatten)]
    platform: Platform,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default)]
    diff_ids: Option<Vec<Digest>>,
}

/// Imports the images that `manifest` (a `manifest.json`) lists and `import` selects.
pub(super) fn take(
    import: &ImageImport<'_>,
    manifest: &[u8],
    spool: &mut Spool<'_>,
    store: &Store,
) -> Result<ImportedImages> {
    let (chosen, notes) = chosen(import, manifest)?;
    let image = |chosen: ChosenImages<ManifestItem>| {
        let what = format!("taking the image {} from {}", chosen.name, import.path.display());
        image(import, chosen, spool, store).class(Class::Invalid, || what)
    };
    Ok(ImportedImages { images: chosen.into_iter().map(image).collect::<Result<_>>()?, notes })
}

pub(super) fn names(import: &ImageImport<'_>, manifest: &[u8]) -> Result<Vec<ImageReference>> {
    Ok(chosen(import, manifest)?.0.into_iter().map(|chosen| chosen.name).collect())
}

/// The images of `manifest` that `import` selects, and notes about those that are left out.
fn chosen(
    import: &ImageImport<'_>,
    manifest: &[u8],
) -> Result<(Vec<ChosenImages<ManifestItem>>, Vec<String>)> {
    let items: Vec<ManifestItem> = serde_json::from_slice(manifest)
        .map_err(|error| import.refuse(&format!("reading its manifest.json: {error}")))?;
    let candidates = items.into_iter().flat_map(candidates).collect();
    choose(candidates, import.references).map_err(|why| import.refuse(&why))
}

/// The image under each of its names. Its digest will be that of the manifest that is made here, which nobody can know
/// beforehand.
fn candidates(item: ManifestItem) -> Vec<ImageCandidate<ManifestItem>> {
    let tags = item.repo_tags.clone().unwrap_or_default();
    let names: Vec<CandidateName> = match tags.is_empty() {
        true => vec![CandidateName::None(String::new())],
        // Always a repository, even if it is a single word without a tag.
        false => tags
            .iter()
            .map(|tag| tag.parse().map_or_else(|_| CandidateName::None(tag.clone()), CandidateName::Full))
            .collect(),
    };
    names.into_iter().map(|name| ImageCandidate { name, digest: None, what: item.clone() }).collect()
}

fn image(
    import: &ImageImport<'_>,
    chosen: ChosenImages<ManifestItem>,
    spool: &mut Spool<'_>,
    store: &Store,
) -> Result<StoredImage> {
    let mut items = chosen.images.into_iter();
    let item = items.next().context("a name without an image")?;
    if items.any(|other| (&other.config, &other.layers) != (&item.config, &item.layers)) {
        return Err(anyhow!("several images have this name"));
    }
    let found = spool.digest(item.config.as_bytes())?;
    if digest_of_name(&item.config).is_some_and(|named| named != found) {
        let why = format!("its configuration {} is damaged: its digest is {}", item.config, found.oci());
        return Err(Failure::new(Class::Verification, why).into());
    }
    let config = spool.place(item.config.as_bytes())?;
    let bytes = files::read_at_most(&store.blob_path(config.digest), MAX_DOCUMENT_BYTES)?;
    let configuration: Configuration = serde_json::from_slice(&bytes).context("reading its configuration")?;
    check_platform(import, &configuration.platform)?;
    let diff_ids = configuration.rootfs.diff_ids.unwrap_or_default();
    let paths = item.layers.unwrap_or_default();
    if paths.len() != diff_ids.len() {
        return Err(anyhow!("it has {} layers, and its configuration names {}", paths.len(), diff_ids.len()));
    }
    let (mut layers, mut described) = (Vec::new(), Vec::new());
    for (path, diff_id) in paths.iter().zip(diff_ids) {
        let layer = spool.place_layer(path.as_bytes()).with_context(|| format!("taking its layer {path}"))?;
        if layer.diff_id != diff_id {
            let why =
                format!("its layer {path} is damaged: its digest is {}, not {}", layer.diff_id, diff_id);
            return Err(Failure::new(Class::Verification, why).hint("Save the image again.").into());
        }
        described.push(descriptor(layer.media_type, layer.blob));
        layers.push(layer.blob);
    }
    let manifest = write_manifest(descriptor(media_types::OCI_CONFIG, config), described, store)?;
    Ok(StoredImage {
        name: chosen.name,
        roles: import.roles.to_vec(),
        indexes: Vec::new(),
        siblings: Vec::new(),
        manifest,
        config,
        layers,
    })
}

fn check_platform(import: &ImageImport<'_>, platform: &Platform) -> Result<()> {
    if platform.is_of(import.architecture) {
        return Ok(());
    }
    Err(Failure::new(Class::Invalid, format!("it is for {platform}, not for linux/{}", import.architecture))
        .hint("Save the image of that platform: docker pull --platform linux/…, then docker save.")
        .into())
}

/// The digest in a configuration's path: `DIGEST.json`, `sha256:DIGEST`, `blobs/sha256/DIGEST`.
fn digest_of_name(path: &str) -> Option<Digest> {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".json").unwrap_or(name).parse().ok()
}
