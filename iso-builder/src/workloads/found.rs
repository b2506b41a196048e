//! Images that manifests and charts name, and where they do.

use std::fmt;
use std::path::PathBuf;

use formats::oci::ImageReference;
use model::config::Role;

use super::spec::ImagePolicy;

/// An image that a manifest or chart names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundImage {
    /// The image.
    pub image: ImageReference,
    /// Where it is named.
    pub origin: ImageOrigin,
    /// The roles whose nodes may run it; empty means every role.
    pub roles: Vec<Role>,
    /// What the definition says about images found there.
    pub policy: ImagePolicy,
}

/// A place that names an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageOrigin {
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

impl ImageOrigin {
    /// The file, and which document or template of it.
    pub(super) fn place(&self) -> String {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        let part = match &self.template {
            Some(template) => format!("template {template}"),
            None => format!("document {}", self.document),
        };
        format!("{}{line}, {part}", self.file.display())
    }
}

impl fmt::Display for ImageOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place(), self.object, self.field)
    }
}
