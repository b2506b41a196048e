//! Kubernetes manifests and Helm charts that the OS image ships: which container images they run, and the files by which
//! the first server of a cluster applies them.
//!
//! [`Workloads`] holds what was read. [`Workloads::discover`] finds images: [`walk`] in objects, through [`documents`], and
//! through [`helm`] in charts. [`complete`] compares them with what is preloaded. [`Workloads::lay_out`] writes the files into
//! the OS image, from where `installer apply` takes them.

mod chart;
mod complete;
mod discover;
mod documents;
mod helm;
mod layout;
pub mod spec;
#[cfg(test)]
mod tests;
mod walk;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use formats::oci::ImageReference;
use model::config::Role;

use self::chart::Chart;
pub use self::complete::{check, included};
pub use self::helm::{Helm, KUBE_VERSION};
use self::layout::Manifest;
use self::spec::{ChartSpec, ImagePolicy, ManifestSpec};
pub use self::walk::ANNOTATION;

/// The manifests and charts of a definition, read.
#[derive(Debug, Default)]
pub struct Workloads {
    manifests: Vec<Manifest>,
    charts: Vec<Chart>,
    /// What reaches the cluster in another way.
    brought: Vec<Manifest>,
}

/// An image that a manifest or chart names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The image.
    pub image: ImageReference,
    /// Where it is named.
    pub origin: Origin,
    /// The roles whose nodes may run it; empty means every role.
    pub roles: Vec<Role>,
    /// What the definition says about images found there.
    pub policy: ImagePolicy,
}

/// A place that names an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// The manifest, or the chart.
    pub file: PathBuf,
    /// The template, if a chart names the image.
    pub template: Option<String>,
    /// The line of the manifest, as far as it is known.
    pub line: Option<usize>,
    /// The number of the document in the manifest or in all that the chart renders to, from 1.
    pub document: usize,
    /// Kind and name of the object.
    pub object: String,
    /// The path in the object.
    pub field: String,
}

impl Origin {
    /// The file, and which document or template of it.
    fn place(&self) -> String {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        let part = match &self.template {
            Some(template) => format!("template {template}"),
            None => format!("document {}", self.document),
        };
        format!("{}{line}, {part}", self.file.display())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place(), self.object, self.field)
    }
}

impl Workloads {
    /// Reads manifests and charts; `resolve` finds their paths. `helm` runs if there are charts.
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
            workloads.manifests.extend(Manifest::read(spec, &resolve(&spec.path))?);
        }
        for spec in charts {
            workloads.charts.push(Chart::read(spec, &resolve, helm)?);
        }
        workloads.refuse_equal_names()?;
        Ok(workloads)
    }

    /// Adds manifests that reach the cluster in another way (an embedded install configuration has some), so that their
    /// images are found. `file` is what messages name.
    pub fn add_brought(&mut self, file: PathBuf, text: String, roles: Vec<Role>, policy: ImagePolicy) {
        self.brought.push(Manifest { name: String::new(), file, text, verbatim: false, roles, policy });
    }

    /// Every image that the manifests and the rendered charts name. What names none in an understandable way is an
    /// error; all such places are told at once.
    pub fn discover(&self, helm: &Helm<'_>) -> Result<Vec<Found>> {
        discover::all(self.manifests.iter().chain(&self.brought), &self.charts, helm)
    }
}
