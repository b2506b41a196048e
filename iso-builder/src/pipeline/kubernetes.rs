//! The step that lays out the files of the Kubernetes distribution for the OS image.

use anyhow::{Context, Result};
use base::digest::Digest;
use serde_json::json;

use super::context::Build;
use super::release_images::ReleaseImages;
use crate::cache::{StepKey, StepOutputs};
use crate::steps::{DistributionSource, StepWork};

impl Build<'_> {
    /// The files of the distribution for the OS image, below [`crate::steps::OVERLAY_OUTPUT`].
    pub(super) fn distribution(&self) -> Result<Option<StepOutputs>> {
        let Some(ReleaseImages { release, runtime, upstream, .. }) = &self.inputs.release else {
            return Ok(None);
        };
        let loaded = &self.inputs.loaded;
        let spec = loaded.definition.kubernetes.as_ref().context("a release belongs to a definition")?;
        let programs = spec.programs(loaded.definition.architecture);
        let layers: Vec<_> = runtime.iter().flat_map(|(_, image)| image.layers.clone()).collect();
        let digests: Vec<Digest> = layers.iter().map(|layer| layer.digest).collect();
        let inputs = json!({
            "version": release.locked.version,
            "programs": programs.iter().map(|name| release.digest(name)).collect::<Result<Vec<_>>>()?,
            "images": upstream,
            "runtime": digests,
        });
        let whole = |name: &String| {
            let path = release.path(name);
            path.canonicalize().with_context(|| format!("resolving {}", path.display()))
        };
        let blobs = runtime.iter().flat_map(|(store, image)| {
            image.layers.iter().map(|layer| store.blob_path(layer.digest)).collect::<Vec<_>>()
        });
        let from = DistributionSource {
            version: release.locked.version.clone(),
            programs: programs.iter().map(whole).collect::<Result<_>>()?,
            runtime: blobs.collect(),
            images: upstream.clone(),
        };
        let message = format!("Laying out {} {}", spec.distribution.name(), spec.version);
        let outputs = self.inputs.cache.step(&StepKey::new("distribution", 3, inputs), |out| {
            self.progress.within("distribution", message, || {
                // Nothing that is made here keeps its time: the OS image gives all files that of the base.
                self.sandboxed(StepWork::Distribution(Box::new(from)), 0, out)
            })
        })?;
        Ok(Some(outputs))
    }
}
