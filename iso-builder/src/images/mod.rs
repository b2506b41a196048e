//! The image store: container images built, collected and prepared for the nodes' containerd.
//!
//! An [`ImageSpec`] of the definition names Debian packages per layer. [`packages`] unpacks them into tar files;
//! [`build`] goes through the images:
//! [`layer`] turns a tar file into an OCI layer, [`image`] makes configuration and manifest, [`store`] is the
//! OCI layout that goes onto the medium, [`metadata`] lets a [`containerd`] make the database that goes with it.
//! Nothing here reaches a registry, and no node imports anything: blobs are copied, the database is put beside
//! them.

pub mod blob;
pub mod build;
pub mod containerd;
pub mod contents;
pub mod image;
mod keep;
pub mod layer;
pub mod metadata;
pub mod packages;
pub mod spec;
pub mod store;

pub use spec::{ImageName, ImageSpec, LayerSpec, PackageName};
pub use store::Store;
