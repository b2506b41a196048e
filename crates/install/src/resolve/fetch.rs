//! Reading what a configuration refers to: files of the live system and answers of servers.

use std::path::Path;

use anyhow::Result;

/// The largest content of a reference, in bytes: far more than a token or an account's keys have.
pub const CONTENT_BYTES_MAX: u64 = 64 << 10;

/// Reads references; tests have their own.
pub trait Fetch {
    /// A file of the live system, of at most [`CONTENT_BYTES_MAX`] bytes.
    fn file(&self, path: &Path) -> Result<FetchedContent>;
    /// A server's answer, of at most [`CONTENT_BYTES_MAX`] bytes.
    fn url(&self, url: &str) -> Result<Vec<u8>>;
}

/// The content of a file. Has no `Debug` that shows it.
#[allow(missing_debug_implementations)]
pub struct FetchedContent {
    pub bytes: Vec<u8>,
    /// Whether every user of the machine can read the file.
    pub readable_by_others: bool,
}

pub(super) fn plain_http(key: &str, url: &str, warn: &mut dyn FnMut(String)) {
    if url.starts_with("http://") {
        let url = base::url::shown(url);
        warn(format!(
            "{key} is fetched from {url} without TLS; anyone on the network path can read and \
            change it"
        ));
    }
}
