//! The image store: container images built, collected and prepared for the nodes' containerd.
//!
//! An [`PreloadEntry`] of the definition says where images come from. A [`BuiltImage`] names Debian packages per layer. [`packages`]
//! unpacks them into tar files; [`import`] takes finished images from layouts and archives;
//! [`build`] goes through the images:
//! [`layer`] turns a tar file into an OCI layer, [`image`] makes configuration and manifest, [`store`] is the
//! OCI layout that goes onto the medium, [`metadata`] lets a [`containerd`] make the database that goes with it and has
//! it checked as on a node. [`layer_check`] reads every layer as a node will unpack it.
//! No node imports anything: blobs are copied, the database is put beside
//! them.

pub mod blob;
pub mod blob_writer;
pub mod build;
pub mod containerd;
mod containerd_check;
pub mod containerd_version;
pub mod contents;
pub mod image;
pub mod import;
mod keep;
pub mod layer;
mod layer_check;
pub mod metadata;
pub mod packages;
pub mod preload;
pub mod pull;
pub mod spec;
pub mod status;
pub mod store;
pub mod stored_image;

pub use layer_check::check as check_layers;
pub use spec::{BuiltImage, Images, LayerSpec, PackageName, PreloadEntry, PreloadSource, Runtime};
pub use store::Store;
