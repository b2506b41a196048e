//! A directory with the content of a medium.

use anyhow::Result;

use model::release::MANIFEST;
use transfer::download::{Download, Downloader, is_absent};

/// A directory on a web server; its files are below one URL.
#[derive(Clone, Debug)]
pub struct HttpDirectory {
    base: String,
    downloader: Downloader,
}

impl HttpDirectory {
    #[must_use]
    pub fn new(url: &str, downloader: Downloader) -> Self {
        Self { base: url.trim_end_matches('/').to_owned(), downloader }
    }

    /// Without a slash at its end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    fn url_of(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    /// A file of known size; no request is made yet.
    #[must_use]
    pub fn file(&self, path: &str, size: u64) -> Download {
        self.downloader.open(&self.url_of(path), Some(size))
    }

    /// A file that may be absent.
    pub fn find(&self, path: &str) -> Result<Option<Download>> {
        let mut download = self.downloader.stream(&self.url_of(path));
        match download.connect_patiently().map_err(anyhow::Error::from) {
            Ok(()) => Ok(Some(download)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The release manifest, of at most `limit` bytes.
    pub fn manifest(&self, limit: u64) -> Result<Vec<u8>> {
        Ok(self.downloader.document(&self.url_of(MANIFEST), limit)?)
    }
}
