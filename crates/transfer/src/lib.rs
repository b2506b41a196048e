//! Transfers over the network: downloads that resume, container registries, messages sent in the background, and what the
//! servers share: limits of connections, files and byte ranges. All retries use one backoff.

pub mod backoff;
pub mod download;
pub mod outbox;
pub mod range;
pub mod registry;
pub mod server;
