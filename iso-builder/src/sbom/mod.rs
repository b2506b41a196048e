//! The bill of materials: `sbom.spdx.json`, which lists the packages of the OS and of every preloaded image.
//!
//! [`tree`] finds the package managers' databases in tar files and in stacks of layers, [`package_databases`] reads them,
//! [`copyright`] the licences of Debian's packages; [`document()`] writes SPDX 2.3. The last is a pure function; nothing here runs a package manager.

mod contents;
pub mod copyright;
mod document;
pub mod package;
pub mod package_databases;
pub mod tree;

pub use contents::{ImageContents, TreePackages};
pub use document::{SbomProduct, document, image_purl};
pub use package::{PackageManager, SbomPackage};
pub use tree::{LayerReader, of_tree};
