//! Writes configuration and manifest of an image, in the form of the OCI image specification.

use anyhow::Result;
use formats::oci::{Descriptor, ImageReference, media_types};
use serde::Serialize;

use super::blob::Blob;
use super::layer::{self, ImageLayer};
use super::spec::BuiltImage;
use super::store::Store;
use super::stored_image::{ImageDocument, StoredImage, descriptor};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u32,
    media_type: &'static str,
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Serialize)]
struct Configuration<'a> {
    created: String,
    architecture: &'a str,
    os: &'a str,
    config: Process<'a>,
    rootfs: RootFs,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Process<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    user: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    entrypoint: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    cmd: &'a [String],
    env: Vec<&'a str>,
    working_dir: &'a str,
    labels: std::collections::BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct RootFs {
    r#type: &'static str,
    diff_ids: Vec<String>,
}

/// The search path for programs if the definition sets none.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The name of an image, and what its containers run.
#[derive(Clone, Debug)]
pub struct ImageProcess<'a> {
    pub name: &'a ImageReference,
    pub entrypoint: &'a [String],
    pub cmd: &'a [String],
    /// Environment variables, each `NAME=value`.
    pub env: Vec<&'a str>,
    /// A user of the image; empty for root.
    pub user: &'a str,
    pub working_dir: &'a str,
    /// Beside those with name and version.
    pub labels: Vec<(&'a str, &'a str)>,
}

/// Writes configuration and manifest of the image `spec` with `layers` into `store`. The caller sets the roles.
///
/// `architecture` is Go's name, which for `amd64` and `arm64` is Debian's too; `epoch` (seconds since 1970) is the time
/// of creation.
pub fn write(
    spec: &BuiltImage,
    layers: &[ImageLayer],
    architecture: &str,
    epoch: u64,
    store: &Store,
) -> Result<StoredImage> {
    let process = ImageProcess {
        name: &spec.name,
        entrypoint: &spec.entrypoint,
        cmd: &spec.cmd,
        env: spec.env.iter().map(|variable| variable.as_str()).collect(),
        user: "",
        working_dir: "/",
        labels: Vec::new(),
    };
    write_process(process, layers, architecture, epoch, store)
}

/// As [`write()`], for an image that is not one of a definition.
pub fn write_process(
    spec: ImageProcess<'_>,
    layers: &[ImageLayer],
    architecture: &str,
    epoch: u64,
    store: &Store,
) -> Result<StoredImage> {
    let created = jiff::Timestamp::from_second(i64::try_from(epoch)?)?.to_string();
    let mut env = spec.env;
    if !env.iter().any(|variable| variable.starts_with("PATH=")) {
        env.insert(0, DEFAULT_PATH);
    }
    let name = spec.name.to_string();
    let tag = spec.name.tag().unwrap_or_default();
    let named =
        [("org.opencontainers.image.ref.name", name.as_str()), ("org.opencontainers.image.version", tag)];
    let process = Process {
        user: spec.user,
        entrypoint: spec.entrypoint,
        cmd: spec.cmd,
        env,
        working_dir: spec.working_dir,
        labels: spec.labels.into_iter().chain(named).collect(),
    };
    let diff_ids = layers.iter().map(|layer| layer.diff_id.oci()).collect();
    let rootfs = RootFs { r#type: "layers", diff_ids };
    let config = Configuration { created, architecture, os: "linux", config: process, rootfs };
    let config = store.add(&serde_json::to_vec(&config)?)?;
    let blobs: Vec<Blob> = layers.iter().map(|layer| layer.blob).collect();
    let described = blobs.iter().map(|blob| descriptor(layer::LAYER_MEDIA_TYPE, *blob)).collect();
    let manifest = write_manifest(descriptor(media_types::OCI_CONFIG, config), described, store)?;
    Ok(StoredImage {
        name: spec.name.clone(),
        roles: Vec::new(),
        indexes: Vec::new(),
        siblings: Vec::new(),
        manifest,
        config,
        layers: blobs,
    })
}

/// Writes a manifest into `store`: the same bytes for the same configuration and layers.
pub(super) fn write_manifest(
    config: Descriptor,
    layers: Vec<Descriptor>,
    store: &Store,
) -> Result<ImageDocument> {
    let manifest = Manifest { schema_version: 2, media_type: media_types::OCI_MANIFEST, config, layers };
    let blob = store.add(&serde_json::to_vec(&manifest)?)?;
    Ok(ImageDocument { media_type: media_types::OCI_MANIFEST.to_owned(), blob })
}
