//! The step that writes the bill of materials.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;

use super::images::Images;
use super::inputs::STORE;
use super::{Build, Outputs};
use crate::cache::Key;
use crate::images::Store;
use crate::sbom::tree::{self, Layers};
use crate::sbom::{self, Product};

/// The name of the document.
pub(super) const NAME: &str = "sbom.spdx.json";

impl Build<'_> {
    /// The bill of materials of the OS and of the images.
    pub(super) fn sbom(&self, base: &Outputs, images: Option<&Images>) -> Result<PathBuf> {
        let definition = &self.inputs.loaded.definition;
        let inputs = json!({
            "epoch": self.lock.epoch,
            "base": base.digest()?,
            "product": [&definition.id, &definition.name, &definition.version],
            "images": images.map(|images| &images.images),
        });
        let outputs = self.inputs.cache.step(&Key::new("sbom", 1, inputs), |out| {
            self.progress.within("sbom", "Writing the bill of materials", || {
                let os = tree::of_tree(&base.path("base.tar"))?;
                let mut contents = Vec::new();
                if let Some(Images { store, images, .. }) = images {
                    let store = Store::at(&store.path(STORE));
                    let mut layers = Layers::new(&store);
                    for image in images {
                        contents.push(layers.image(image)?);
                    }
                }
                let product =
                    Product { id: &definition.id, name: &definition.name, version: &definition.version };
                let document = sbom::document(&product, &os, &contents, self.lock.epoch);
                fs::write(out.join(NAME), document).context("writing the bill of materials")
            })
        })?;
        Ok(outputs.path(NAME))
    }
}
