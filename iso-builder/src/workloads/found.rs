//! Images that manifests and charts name, and the places where they do.

use std::fmt;
use std::path::PathBuf;

use formats::oci::ImageReference;
use model::config::Role;

use super::spec::ImagePolicy;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundImage {
    pub image: ImageReference,
    pub origin: ImageOrigin,
    /// The roles whose nodes may run it; empty means every role.
    pub roles: Vec<Role>,
    /// The policy in the definition for images of that manifest or chart.
    pub policy: ImagePolicy,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageOrigin {
    /// The manifest, or the chart.
    pub file: PathBuf,
    /// The template, if a chart names the image.
    pub template: Option<String>,
    /// The line in the manifest, if it is known.
    pub line: Option<usize>,
    /// The number of the document in the manifest, or in everything that the chart renders to, from 1.
    pub document: usize,
    /// Kind and name of the object.
    pub object: String,
    /// The path in the object.
    pub field: String,
}

impl ImageOrigin {
    /// The file, with the document or template in it.
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
