//! A medium behind HTTP.

use std::io::Read;

use anyhow::Result;

use super::manifest::MANIFEST_LIMIT;
use super::payload_source::{PayloadPlace, PayloadSource, PayloadTransport};
use model::release::{MANIFEST, Payload};
use transfer::download::{Download, Downloader, RetryPolicy, is_absent, shown};

/// What a user does when the server lacks a file or has another.
const HINT: &str =
    "Check install.medium or --medium; it must name a full medium of the same release, unchanged.";

/// The content of a full medium on a web server.
#[derive(Clone, Debug)]
pub struct HttpMedium {
    base: String,
    downloader: Downloader,
}

impl HttpMedium {
    /// The medium whose files lie below `base`, from a server that the authorities of these certificates (PEM) vouch for beside the
    /// usual ones.
    pub fn trusting(base: &str, authorities: &[String]) -> Result<Self> {
        Self::with(base, RetryPolicy::default(), authorities)
    }

    /// With other limits, and no further authorities.
    pub fn with_retry(base: &str, retry: RetryPolicy) -> Result<Self> {
        Self::with(base, retry, &[])
    }

    fn with(base: &str, retry: RetryPolicy, authorities: &[String]) -> Result<Self> {
        let base = base.trim_end_matches('/').to_owned();
        let downloader = Downloader::trusting(&base, retry, HINT, authorities)?;
        Ok(Self { base, downloader })
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    fn download(&self, payload: &Payload) -> Download {
        self.downloader.open(&self.url(&payload.path), Some(payload.size))
    }
}

impl PayloadSource for HttpMedium {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let mut download = self.download(payload);
        download.connect_patiently()?;
        Ok(Box::new(download))
    }

    fn place(&self, _: &Payload) -> Option<PayloadPlace> {
        Some(PayloadPlace::Network)
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        // The length comes with the header. Of a whole body a server may have sent megabytes before it hears that nobody
        // reads it.
        let last = payload.size.saturating_sub(1);
        Ok(self.download(payload).starting_at(last).connect_patiently()?)
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        Ok(self.downloader.document(&self.url(MANIFEST), MANIFEST_LIMIT)?)
    }

    fn beside(&self, path: &str) -> Result<Option<Box<dyn Read + Send>>> {
        let mut download = self.downloader.stream(&self.url(path));
        match download.connect_patiently().map_err(anyhow::Error::from) {
            Ok(()) => Ok(Some(Box::new(download))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn transport(&self) -> PayloadTransport {
        PayloadTransport::of(&self.base)
    }

    fn describe(&self) -> String {
        shown(&self.base)
    }
}
