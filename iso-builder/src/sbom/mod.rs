//! The bill of materials: `sbom.spdx.json`, which says what packages the OS and every preloaded image are made of.
//!
//! [`tree`] finds the package managers' databases in tar files and in layers over one another, [`database`] reads them,
//! [`document()`] writes SPDX 2.3 from what was found. The last is a pure function; nothing here runs a package manager.

mod contents;
pub mod database;
mod document;
pub mod package;
pub mod tree;

pub use contents::{ImageContents, TreePackages};
pub use document::{SbomProduct, document};
pub use package::{PackageManager, SbomPackage};
pub use tree::{LayerReader, of_tree};
