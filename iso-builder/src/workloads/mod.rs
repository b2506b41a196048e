//! Kubernetes manifests and Helm charts that the OS image ships: which container images they run, and the files from
//! which the first server of a cluster applies them.
//!
//! [`Workloads`] holds what was read. [`Workloads::discover`] finds images: [`walk`] in objects, through [`documents`],
//! and through [`helm`] in charts. [`complete`] compares them with what is preloaded. [`Workloads::lay_out`] writes the
//! files into the OS image, from where `installer apply` takes them.

mod chart;
mod complete;
mod discover;
mod documents;
mod found;
mod helm;
mod layout;
mod manifest;
pub mod spec;
#[cfg(test)]
mod tests;
mod walk;

use std::path::{Path, PathBuf};

use anyhow::Result;
use model::config::Role;

use self::chart::Chart;
pub use self::complete::{check, included};
pub use self::found::{FoundImage, ImageOrigin};
pub use self::helm::{Helm, KUBE_VERSION};
use self::manifest::ManifestFile;
use self::spec::{ChartSpec, ImagePolicy, ManifestSpec};
pub use self::walk::ANNOTATION;

/// The manifests and charts of a definition.
#[derive(Debug, Default)]
pub struct Workloads {
    manifests: Vec<ManifestFile>,
    charts: Vec<Chart>,
    /// Manifests that reach the cluster in another way.
    brought: Vec<ManifestFile>,
}

impl Workloads {
    /// Reads manifests and charts; `resolve` gives their paths. `helm` runs if there are charts.
    pub fn read(
        manifests: &[ManifestSpec],
        charts: &[ChartSpec],
        resolve: impl Fn(&Path) -> PathBuf,
        helm: &Helm<'_>,
    ) -> Result<Self> {
        if !charts.is_empty() {
            helm.check()?;
        }
        let mut workloads = Self::default();
        for spec in manifests {
            workloads.manifests.extend(ManifestFile::read(spec, &resolve(&spec.path))?);
        }
        for spec in charts {
            workloads.charts.push(Chart::read(spec, &resolve, helm)?);
        }
        workloads.refuse_equal_names()?;
        Ok(workloads)
    }

    /// Adds manifests that reach the cluster in another way (those of an embedded install configuration), so that their
    /// images are found. `file` is the name in messages.
    pub fn add_brought(&mut self, file: PathBuf, text: String, roles: Vec<Role>, policy: ImagePolicy) {
        self.brought.push(ManifestFile { name: String::new(), file, text, verbatim: false, roles, policy });
    }

    /// Every image that the manifests and the rendered charts name. An image field with an unusable value is an error;
    /// all such fields are reported together.
    pub fn discover(&self, helm: &Helm<'_>) -> Result<Vec<FoundImage>> {
        discover::all(self.manifests.iter().chain(&self.brought), &self.charts, helm)
    }
}
