//! The Kubernetes distribution of a build: its images, and the step that lays out what goes into the OS image.

use anyhow::{Context, Result};
use base::digest::Digest;
use base::progress::Progress;
use model::config::Distribution;
use serde_json::json;

use super::inputs::{STORE, imported, stored};
use super::{Build, Outputs};
use crate::cache::{Cache, Key};
use crate::definition::Loaded;
use crate::images::Store;
use crate::images::image::StoredImage;
use crate::images::import::Import;
use crate::kubernetes::runtime;
use crate::obtain::ObtainedRelease;
use crate::steps::{DistributionSource, StepWork};

/// A release, with what of its images goes elsewhere than into the image store.
#[derive(Debug)]
pub(super) struct Brought {
    /// The release.
    pub(super) release: ObtainedRelease,
    /// RKE2's runtime image, and the store that it is in.
    runtime: Option<(Store, StoredImage)>,
}

/// Images, with the store that they are in.
type Stored = Vec<(Outputs, Vec<StoredImage>)>;

/// Reads the release's archives of images. All roles get all of them: which of the images a role runs is not written anywhere in
/// a release, and the first node of a cluster runs the control plane whatever its role is.
pub(super) fn bring(
    release: ObtainedRelease,
    loaded: &Loaded,
    cache: &Cache,
    progress: &Progress,
) -> Result<(Brought, Stored)> {
    let spec = loaded.definition.kubernetes.as_ref().context("a release belongs to a definition")?;
    let architecture = loaded.definition.architecture.debian();
    let mut images = Vec::new();
    for name in spec.archives(architecture) {
        let path = release.path(&name);
        let import = Import { path: &path, references: &[], checksums: None, architecture, roles: &[] };
        let outputs = imported(&import, release.digest(&name)?, cache, progress)?;
        let stored = stored(&outputs)?;
        images.push((outputs, stored));
    }
    let runtime = match spec.distribution {
        Distribution::Rke2 => Some(take_runtime(&mut images, &release)?),
        Distribution::K3s => None,
    };
    Ok((Brought { release, runtime }, images))
}

/// Takes RKE2's runtime image out of all archives that have it.
fn take_runtime(images: &mut Stored, release: &ObtainedRelease) -> Result<(Store, StoredImage)> {
    let version = &release.locked.version;
    let mut all: Vec<_> = images.iter().flat_map(|(_, images)| images.clone()).collect();
    let runtime = runtime::take(&mut all, version)?;
    let holder = images.iter().find(|(_, images)| images.contains(&runtime));
    let (outputs, _) = holder.context("an image is in the archive that it came from")?;
    let store = Store::at(&outputs.path(STORE));
    images.iter_mut().for_each(|(_, images)| images.retain(|image| image.name != runtime.name));
    Ok((store, runtime))
}

impl Build<'_> {
    /// What the distribution brings to the OS image, below [`crate::steps::OVERLAY`].
    pub(super) fn distribution(&self) -> Result<Option<Outputs>> {
        let Some(Brought { release, runtime }) = &self.inputs.release else { return Ok(None) };
        let loaded = &self.inputs.loaded;
        let spec = loaded.definition.kubernetes.as_ref().context("a release belongs to a definition")?;
        let program = spec.program(loaded.definition.architecture.debian());
        let layers: Vec<_> = runtime.iter().flat_map(|(_, image)| image.layers.clone()).collect();
        let digests: Vec<Digest> = layers.iter().map(|layer| layer.digest).collect();
        let inputs = json!({
            "version": release.locked.version,
            "program": release.digest(&program)?,
            "runtime": digests,
        });
        let path = release.path(&program);
        let path = path.canonicalize().with_context(|| format!("resolving {}", path.display()))?;
        let blobs = runtime.iter().flat_map(|(store, image)| {
            image.layers.iter().map(|layer| store.blob_path(layer.digest)).collect::<Vec<_>>()
        });
        let from = DistributionSource {
            version: release.locked.version.clone(),
            program: path,
            runtime: blobs.collect(),
        };
        let message = format!("Laying out {} {}", spec.distribution.name(), spec.version);
        let outputs = self.inputs.cache.step(&Key::new("distribution", 1, inputs), |out| {
            self.progress
                .within("distribution", message, || self.sandboxed(StepWork::Distribution(from), out))
        })?;
        Ok(Some(outputs))
    }
}
