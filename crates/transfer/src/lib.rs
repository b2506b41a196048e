//! Bytes over the network: downloads that resume, and container registries.

pub mod download;
pub mod registry;
