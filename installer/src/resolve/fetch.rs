//! Reading what is referred to: files of the installing system and what servers give.

use std::path::Path;

use anyhow::Result;

/// The most that a reference may lead to, in bytes: far more than a token or an account's keys have.
pub const LIMIT: u64 = 64 << 10;

/// Reads what is referred to; tests have their own.
pub trait Fetch {
    /// A file of the installing system, of at most [`LIMIT`] bytes.
    fn file(&self, path: &Path) -> Result<FetchedContent>;
    /// What a server gives, at most [`LIMIT`] bytes.
    fn url(&self, url: &str) -> Result<Vec<u8>>;
}

/// What is in a file. Has no `Debug` that shows it.
#[allow(missing_debug_implementations)]
pub struct FetchedContent {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether every user of the machine can read the file.
    pub readable_by_others: bool,
}

/// Told where a URL without TLS is used for something that matters.
pub(super) fn plain_http(key: &str, url: &str, warn: &mut dyn FnMut(String)) {
    if url.starts_with("http://") {
        let url = transfer::download::shown(url);
        warn(format!("{key} comes from {url} without TLS; whoever is on the way can read and change it"));
    }
}
