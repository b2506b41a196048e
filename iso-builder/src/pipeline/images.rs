//! The steps that make the image store and containerd's metadata for it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use base::files;
use model::release::{Image, Payload};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::base_system::BaseSystem;
use super::context::Build;
use super::image_outputs::{LIST_OUTPUT, STORE_OUTPUT, stored};
use super::inputs::BuildInputs;
use crate::cache::{StepKey, StepOutputs};
use crate::images::blob::Blob;
use crate::images::build::ImageSettings;
use crate::images::containerd_version::NodeContainerd;
use crate::images::spec::LayerSpec;
use crate::images::store::StoreContents;
use crate::images::stored_image::StoredImage;
use crate::images::{BuiltImage, Runtime, Store, build as images, check_layers, pull, status};
use crate::packages::ResolvedPackage;
use crate::steps::{MetadataSource, StepWork};
use crate::workloads;

/// The output that says what the release manifest has about the store.
const LISTING_OUTPUT: &str = "listing.json";

#[derive(Debug)]
pub(super) struct BuiltImages {
    /// `store/`, an OCI layout.
    pub(super) store: StepOutputs,
    /// `ROLE.db` for every role, and which containerd wrote them.
    pub(super) metadata: StepOutputs,
    pub(super) listing: StoreListing,
    pub(super) images: Vec<StoredImage>,
}

/// The release manifest's description of the store, as the cache keeps it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoreListing {
    pub(super) payloads: Vec<Payload>,
    pub(super) images: Vec<Image>,
}

impl Build<'_> {
    /// The image store; none if the definition preloads no images.
    pub(super) fn images(
        &self,
        base: &BaseSystem,
        built: Option<&StepOutputs>,
    ) -> Result<Option<BuiltImages>> {
        let images = self.all_images(built)?;
        self.check_completeness(&images)?;
        if images.is_empty() {
            return Ok(None);
        }
        let store = self.image_store(&images, built)?;
        let definition = &self.inputs.loaded.definition;
        let architecture = definition.architecture.debian();
        let node = match definition.runtime() {
            Runtime::Containerd => NodeContainerd::OfBase,
            Runtime::Rke2 | Runtime::K3s => NodeContainerd::Unknown,
        };
        let inputs = json!({
            "base": base.digest()?,
            "store": store.digest()?,
            "architecture": architecture,
            "node": node,
        });
        let metadata = self.inputs.cache.step(&StepKey::new("image-metadata", 4, inputs), |out| {
            let work = StepWork::Metadata(MetadataSource {
                base: base.archive()?,
                store: store.path("")?,
                node: node.clone(),
            });
            let message = "Preparing containerd's metadata";
            self.progress.within("image-metadata", message, || self.sandboxed(work, base.epoch, out))
        })?;
        let listing = files::read_at_most(&store.path(LISTING_OUTPUT)?, 64 << 20)?;
        let listing = serde_json::from_slice(&listing).context("reading the listing of the image store")?;
        Ok(Some(BuiltImages { store, metadata, listing, images }))
    }

    /// Every image with its roles and the names of its blobs. Blobs from registries may not be downloaded yet.
    pub(super) fn all_images(&self, built: Option<&StepOutputs>) -> Result<Vec<StoredImage>> {
        let BuildInputs { local, preload, pull: options, registry, blobs, .. } = &self.inputs;
        let mut images: Vec<_> = local.iter().flat_map(|(_, images)| images.clone()).collect();
        images.extend(built.map(stored).transpose()?.unwrap_or_default());
        let architecture = self.inputs.loaded.definition.architecture.debian();
        images.extend(pull::documents(
            &self.lock.images,
            architecture,
            registry.as_ref(),
            blobs,
            options.transfers,
        )?);
        preload.with_roles(images)
    }

    /// Fails if a shipped manifest or chart runs an image that nodes would lack.
    pub(super) fn check_completeness(&self, images: &[StoredImage]) -> Result<()> {
        let names = |image: &StoredImage| -> Vec<_> {
            image.names().into_iter().map(|name| (name, image.roles.clone())).collect()
        };
        let stored: Vec<_> = images.iter().flat_map(names).collect();
        Ok(workloads::check(&self.inputs.found, &stored)?)
    }

    /// The images that are built from packages, without roles: `store/` and `images.json`.
    pub(super) fn built_images(&self) -> Result<Option<StepOutputs>> {
        let definition = &self.inputs.loaded.definition;
        let built: Vec<_> = definition.images.built().collect();
        if built.is_empty() {
            return Ok(None);
        }
        let lists: BTreeSet<_> =
            built.iter().flat_map(|image| &image.layers).map(LayerSpec::package_list).collect();
        let packages = self.lock.packages_for(|list| lists.contains(list));
        let inputs = json!({
            "epoch": self.given_epoch(),
            "images": built,
            "suite": definition.packages.suite,
            "architecture": definition.architecture,
            "packages": packages.iter().map(|package| package.sha256).collect::<Vec<_>>(),
        });
        let outputs = self.inputs.cache.step(&StepKey::new("images-built", 3, inputs), |out| {
            let message = format!("Building {} container images", built.len());
            self.progress.within("images", message, || self.build_images(&built, &packages, out))
        })?;
        Ok(Some(outputs))
    }

    fn build_images(&self, built: &[&BuiltImage], packages: &[&ResolvedPackage], out: &Path) -> Result<()> {
        let definition = &self.inputs.loaded.definition;
        let unpacked =
            tempfile::tempdir_in(self.inputs.cache.scratch()).context("making a scratch directory")?;
        let repository = self.repository(packages)?;
        let epoch = self.epoch_of(&repository)?;
        let store = Store::create(&out.join(STORE_OUTPUT))?;
        let settings = ImageSettings { architecture: definition.architecture.debian(), epoch };
        let mut number = 0;
        let images = images::build(built, settings, &store, &mut |layer| {
            number += 1;
            let directory = unpacked.path().join(number.to_string());
            files::make_directory(&directory, 0o755)?;
            let wanted = layer.package_list();
            let packages = self.lock.packages_for(|list| *list == wanted);
            let work = StepWork::Extract {
                suite: definition.packages.suite.clone(),
                repository: repository.of(&packages),
                include: wanted.include,
            };
            self.sandboxed(work, epoch, &directory)?;
            let layer = directory.join("layer.tar");
            status::add(&layer, &packages)?;
            Ok(layer)
        })?;
        fs::write(out.join(LIST_OUTPUT), serde_json::to_vec(&images)?).context("writing the list of images")
    }

    /// `store/`, `images.json` and `listing.json`: every blob once, as a hard link to a file of the cache.
    fn image_store(&self, images: &[StoredImage], built: Option<&StepOutputs>) -> Result<StepOutputs> {
        let BuildInputs { local, pull: options, registry, blobs, cache, .. } = &self.inputs;
        cache.step(&StepKey::new("image-store", 3, json!({ "images": images })), |out| {
            let steps = local.iter().map(|(outputs, _)| outputs).chain(built);
            let steps = steps.map(|outputs| Ok(Store::at(&outputs.path(STORE_OUTPUT)?)));
            let steps = steps.collect::<Result<Vec<_>>>()?;
            let store = Store::create(&out.join(STORE_OUTPUT))?;
            let held =
                |blob: &Blob| steps.iter().map(|s| s.blob_path(blob.digest)).find(|path| path.exists());
            let is_pulled = |image: &&StoredImage| !image.blobs().all(|blob| held(&blob).is_some());
            let pulled: Vec<_> = images.iter().filter(is_pulled).cloned().collect();
            pull::blobs(&pulled, registry.as_ref(), blobs, options.transfers, self.progress)?;
            for blob in images.iter().flat_map(StoredImage::blobs) {
                let source = held(&blob).unwrap_or_else(|| blobs.path(blob.digest));
                store.take(blob, &source)?;
            }
            check_layers(&store, &pulled, options.transfers, self.progress)?;
            let StoreContents { payloads, images: listed } = store.finish(images)?;
            fs::write(out.join(LIST_OUTPUT), serde_json::to_vec(images)?)?;
            fs::write(
                out.join(LISTING_OUTPUT),
                serde_json::to_vec(&StoreListing { payloads, images: listed })?,
            )?;
            Ok(())
        })
    }
}
