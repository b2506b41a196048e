//! What was found: the packages of a tree, and a container image with its packages.

use base::digest::Digest;
use formats::oci::ImageReference;

use super::package::SbomPackage;

/// The packages of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreePackages {
    /// Those that were found, sorted, each once.
    pub packages: Vec<SbomPackage>,
    /// Databases that were not read, by path.
    pub unread: Vec<String>,
}

/// What is in a container image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageContents {
    /// Its reference.
    pub name: ImageReference,
    /// The digest that the reference leads to.
    pub digest: Digest,
    /// Its packages.
    pub contents: TreePackages,
}
