//! The words of the OCI specifications: references to images, and the documents that name an image's blobs.
//!
//! Pure types without input or output. [`registry`](transfer::registry) fetches such documents, `iso-builder` reads them
//! from archives and writes them into the image store.
//!
//! Docker's older forms (schema 2) are read wherever the OCI forms are; they differ in their media types only.

mod document;
pub mod media_types;
mod reference;

pub use document::{Descriptor, Document, ImageIndex, ImageManifest, ParseDocumentError, Platform};
pub use reference::{ImageReference, ParseReferenceError, Repository};
