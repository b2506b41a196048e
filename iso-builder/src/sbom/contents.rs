//! Packages that were found in a tree or in a container image.

use base::digest::Digest;
use formats::oci::ImageReference;

use super::package::SbomPackage;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePackages {
    /// Sorted, each once.
    pub packages: Vec<SbomPackage>,
    /// The paths of databases that could not be read.
    pub unread: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageContents {
    pub name: ImageReference,
    /// The digest that the reference was resolved to.
    pub digest: Digest,
    pub contents: TreePackages,
}
