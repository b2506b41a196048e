//! The step that writes the bill of materials.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use medium::build_output::SBOM;
use serde_json::json;

use super::base_system::BaseSystem;
use super::context::Build;
use super::extensions::MadeExtensions;
use super::image_outputs::STORE_OUTPUT;
use super::images::BuiltImages;
use crate::cache::StepKey;
use crate::images::Store;
use crate::kubernetes::Kubernetes;
use crate::sbom::tree::{self, LayerReader};
use crate::sbom::{self, PackageManager, SbomPackage, SbomProduct};

impl Build<'_> {
    /// The bill of materials of the OS and of the images.
    pub(super) fn sbom(
        &self,
        base: &BaseSystem,
        images: Option<&BuiltImages>,
        extensions: &MadeExtensions,
    ) -> Result<PathBuf> {
        let definition = &self.inputs.loaded.definition;
        let inputs = json!({
            "base": base.digest()?,
            "product": [&definition.id, &definition.name, &definition.version],
            "distribution": definition.kubernetes.as_ref().map(|kubernetes| &kubernetes.version),
            "extensions": extensions.packages.iter().map(SbomPackage::purl).collect::<Vec<_>>(),
            "images": images.map(|images| &images.images),
        });
        let outputs = self.inputs.cache.step(&StepKey::new("sbom", 5, inputs), |out| {
            self.progress.within("sbom", "Writing the bill of materials", || {
                let mut os = tree::of_tree(&base.archive()?)?;
                os.packages.extend(definition.kubernetes.as_ref().map(released));
                os.packages.extend(extensions.packages.iter().cloned());
                let mut contents = Vec::new();
                if let Some(BuiltImages { store, images, .. }) = images {
                    let store = Store::at(&store.path(STORE_OUTPUT)?);
                    let mut layers = LayerReader::new(&store);
                    for image in images {
                        contents.push(layers.image(image)?);
                    }
                }
                let product =
                    SbomProduct { id: &definition.id, name: &definition.name, version: &definition.version };
                let document = sbom::document(&product, &os, &contents, base.epoch);
                fs::write(out.join(SBOM), document).context("writing the bill of materials")
            })
        })?;
        outputs.path(SBOM)
    }
}

/// The distribution as a package; no package manager lists it.
pub(super) fn released(kubernetes: &Kubernetes) -> SbomPackage {
    let (owner, name) = kubernetes.repository();
    SbomPackage {
        manager: PackageManager::Github,
        distribution: owner.to_owned(),
        name: name.to_owned(),
        version: kubernetes.version.to_string(),
        architecture: String::new(),
        source: None,
        licence: Some("Apache-2.0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_named_by_its_release() {
        for (text, purl) in [
            ("{distribution: rke2, version: v1.33.1+rke2r1}", "pkg:github/rancher/rke2@v1.33.1%2Brke2r1"),
            ("{distribution: k3s, version: v1.33.1+k3s1}", "pkg:github/k3s-io/k3s@v1.33.1%2Bk3s1"),
            ("{distribution: kubeadm, version: v1.37.2}", "pkg:github/kubernetes/kubernetes@v1.37.2"),
        ] {
            assert_eq!(released(&serde_saphyr::from_str(text).unwrap()).purl(), purl);
        }
    }
}
