//! Configuration and manifest of an image, as the OCI image specification has them.

use anyhow::Result;
use installer::config::Role;
use serde::{Deserialize, Serialize};

use super::blob::Blob;
use super::layer::{self, Layer};
use super::spec::{ImageName, ImageSpec};
use super::store::Store;

/// Media type of manifests.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of configurations.
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// An image whose blobs are all in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    /// Its reference.
    pub name: ImageName,
    /// The roles whose nodes need it; empty means every role.
    pub roles: Vec<Role>,
    /// The manifest.
    pub manifest: Blob,
    /// The configuration.
    pub config: Blob,
    /// The layers, lowest first.
    pub layers: Vec<Blob>,
}

impl StoredImage {
    /// Whether nodes of this role get the image.
    #[must_use]
    pub fn is_for(&self, role: Role) -> bool {
        self.roles.is_empty() || self.roles.contains(&role)
    }

    /// All blobs in the order in which a reader needs them: manifest, configuration, layers.
    pub fn blobs(&self) -> impl Iterator<Item = Blob> {
        [self.manifest, self.config].into_iter().chain(self.layers.iter().copied())
    }
}

/// A descriptor of the OCI specification.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

impl Descriptor {
    pub(super) fn new(media_type: &str, blob: Blob) -> Self {
        let annotations = std::collections::BTreeMap::new();
        Self { media_type: media_type.into(), digest: blob.digest.oci(), size: blob.size, annotations }
    }
}

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

/// Where programs are found when the definition does not say.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Writes configuration and manifest of the image `spec` with `layers` into `store`.
///
/// `architecture` is Go's name, which for `amd64` and `arm64` is Debian's too; `epoch` (seconds since 1970) is
/// the time of creation.
pub fn write(
    spec: &ImageSpec,
    layers: &[Layer],
    architecture: &str,
    epoch: u64,
    store: &Store,
) -> Result<StoredImage> {
    let created = jiff::Timestamp::from_second(i64::try_from(epoch)?)?.to_string();
    let mut env: Vec<&str> = spec.env.iter().map(|variable| variable.as_str()).collect();
    if !env.iter().any(|variable| variable.starts_with("PATH=")) {
        env.insert(0, PATH);
    }
    let name = spec.name.as_str();
    let process = Process {
        entrypoint: &spec.entrypoint,
        cmd: &spec.cmd,
        env,
        working_dir: "/",
        labels: [
            ("org.opencontainers.image.ref.name", name),
            ("org.opencontainers.image.version", spec.name.tag()),
        ]
        .into(),
    };
    let diff_ids = layers.iter().map(|layer| layer.diff_id.oci()).collect();
    let rootfs = RootFs { r#type: "layers", diff_ids };
    let config = Configuration { created, architecture, os: "linux", config: process, rootfs };
    let config = store.add(&serde_json::to_vec(&config)?)?;
    let blobs: Vec<Blob> = layers.iter().map(|layer| layer.blob).collect();
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST,
        config: Descriptor::new(CONFIG, config),
        layers: blobs.iter().map(|blob| Descriptor::new(layer::MEDIA_TYPE, *blob)).collect(),
    };
    let manifest = store.add(&serde_json::to_vec(&manifest)?)?;
    Ok(StoredImage { name: spec.name.clone(), roles: spec.roles.clone(), manifest, config, layers: blobs })
}
