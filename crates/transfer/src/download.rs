//! Transfers over HTTP, for everything that the programs fetch.
//!
//! | Module | What it knows |
//! |---|---|
//! | `client` | the HTTP client: proxies, certificates, no redirects |
//! | `downloader` | opens downloads |
//! | [`document`] | small things, read whole with a limit and from one answer |
//! | [`resume`] | files of any size, read over broken connections to their end |
//! | `progress_rule` | when a server sends too little |
//! | [`redirect`] | which redirects are followed, and which servers get credentials |
//! | [`retry`] | how long to wait, and how often to try |
//! | [`proxies`] | proxies that a configuration names |
//! | `cause`, `transfer_error` | why a transfer failed, and whether it is retried |
//!
//! The reader checks digests.

mod cause;
mod client;
mod document;
mod downloader;
mod progress_rule;
pub mod proxies;
pub mod redirect;
mod resume;
mod retry;
mod transfer_error;

pub use cause::{
    ConnectionError, ConnectionFault, EXPIRED, NotFoundError, carried, is_absent, is_temporary, reason,
};
pub use client::client;
pub use document::{BodyError, TooLargeError, body};
pub use downloader::{Authorizer, Downloader};
pub use resume::Download;
pub(crate) use retry::asked_wait;
pub use retry::{Attempts, RetryPolicy, TemporaryError, try_once};
