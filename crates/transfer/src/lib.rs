//! Bytes over the network: downloads that resume, container registries, messages that are sent in the background, the parts
//! of files that requests ask for, the connections of a server; one backoff for whoever tries again.

pub mod backoff;
pub mod download;
pub mod outbox;
pub mod range;
pub mod registry;
pub mod server;
