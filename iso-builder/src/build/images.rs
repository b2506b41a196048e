//! The steps that make the image store and containerd's metadata for it.

use std::fs;

use anyhow::{Context, Result};
use installer::files;
use installer::release::{Image, Payload};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Build, Outputs};
use crate::cache::Key;
use crate::images::build::Settings;
use crate::images::store::Listing;
use crate::images::{Store, build as images};
use crate::steps::Work;

/// The image store with its metadata.
#[derive(Debug)]
pub(super) struct Images {
    /// `store/`, an OCI layout.
    pub(super) store: Outputs,
    /// `ROLE.db` for every role.
    pub(super) metadata: Outputs,
    /// What the release manifest says of the store.
    pub(super) listing: Listed,
}

/// What the release manifest says of the store, as it is kept in the cache.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) payloads: Vec<Payload>,
    pub(super) images: Vec<Image>,
}

impl Build<'_> {
    /// The image store, or nothing where the definition preloads no images.
    pub(super) fn images(&self, base: &Outputs) -> Result<Option<Images>> {
        if self.loaded.definition.images.preload.is_empty() {
            return Ok(None);
        }
        let store = self.image_store()?;
        let inputs = json!({
            "epoch": self.lock.epoch,
            "base": base.digest()?,
            "store": store.digest()?,
        });
        let metadata = self.cache.step(&Key::new("image-metadata", 1, inputs), |out| {
            let work = Work::Metadata { base: base.path("base.tar"), store: store.path("") };
            let message = "Preparing containerd's metadata";
            self.progress.within("image-metadata", message, || self.sandboxed(work, out))
        })?;
        let listing = files::read_at_most(&store.path("listing.json"), 64 << 20)?;
        let listing = serde_json::from_slice(&listing).context("reading the listing of the image store")?;
        Ok(Some(Images { store, metadata, listing }))
    }

    /// `store/`, `images.json` and `listing.json`.
    fn image_store(&self) -> Result<Outputs> {
        let definition = &self.loaded.definition;
        let inputs = json!({
            "epoch": self.lock.epoch,
            "images": definition.images.preload,
            "suite": definition.packages.suite,
            "architecture": definition.architecture,
            "packages": self.lock.packages.iter().map(|package| package.sha256).collect::<Vec<_>>(),
        });
        self.cache.step(&Key::new("images", 1, inputs), |out| {
            let message = format!("Building {} container images", definition.images.built().count());
            self.progress.within("images", message, || {
                let unpacked =
                    tempfile::tempdir_in(self.cache.scratch()).context("making a scratch directory")?;
                let repository = self.repository()?;
                let store = Store::create(&out.join("store"))?;
                let settings =
                    Settings { architecture: definition.architecture.debian(), epoch: self.lock.epoch };
                let mut number = 0;
                let built = images::build(
                    &definition.images.built().collect::<Vec<_>>(),
                    settings,
                    &store,
                    &mut |layer| {
                        number += 1;
                        let directory = unpacked.path().join(number.to_string());
                        files::make_directory(&directory, 0o755)?;
                        let work = Work::Extract {
                            suite: definition.packages.suite.clone(),
                            repository: repository.clone(),
                            include: layer
                                .packages
                                .iter()
                                .map(|package| package.as_str().to_owned())
                                .collect(),
                        };
                        self.sandboxed(work, &directory)?;
                        Ok(directory.join("layer.tar"))
                    },
                )?;
                let Listing { payloads, images } = store.finish(&built)?;
                fs::write(out.join("images.json"), serde_json::to_vec(&built)?)?;
                fs::write(out.join("listing.json"), serde_json::to_vec(&Listed { payloads, images })?)?;
                Ok(())
            })
        })
    }
}
