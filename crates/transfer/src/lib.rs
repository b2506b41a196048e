//! Bytes over the network: downloads that resume, and container registries; one backoff for whoever tries again.

pub mod backoff;
pub mod download;
pub mod registry;
