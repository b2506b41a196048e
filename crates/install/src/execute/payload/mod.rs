//! What is written to the partitions: the slots with the OS image, the container images, the files of the node.

mod direct;
mod expand;
pub(super) mod image;
pub(super) mod import;
pub(super) mod install_files;
pub(super) mod node_files;
pub(super) mod readback;
pub(super) mod seed;
pub(super) mod slot;
pub(super) mod slot_source;
pub(super) mod store;
pub(super) mod unpack;
