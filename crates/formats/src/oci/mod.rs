//! Types of the OCI specifications: references to images, and the documents that list the blobs of an image.
//!
//! Types without input or output, but for [`layout`], which is a directory. [`registry`](transfer::registry) fetches such documents, `iso-builder` reads them
//! from archives and writes them into the image store.
//!
//! Docker's older forms (schema 2) are read wherever the OCI forms are; they differ in their media types only.

mod artifact;
mod document;
mod layer_type;
pub mod layout;
pub mod media_types;
mod platform;
mod reference;
pub mod referrers;
mod resolve;

pub use artifact::ArtifactManifest;
pub use document::{Descriptor, Document, ImageIndex, ImageManifest, ParseDocumentError, prefixed};
pub use layer_type::LayerCompression;
pub use platform::Platform;
pub use reference::{ImageReference, ParseReferenceError, Repository};
pub use resolve::{ResolveImageError, ResolvedImage, resolve_image};
