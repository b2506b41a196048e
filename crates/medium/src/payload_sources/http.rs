//! A medium behind HTTP.

use std::io::Read;

use anyhow::Result;

use super::manifest::MANIFEST_LIMIT;
use super::payload_source::{PayloadPlace, PayloadSource, PayloadTransport};
use crate::http::HttpDirectory;
use crate::patches::{LIST_LIMIT, PATCHES, PatchList, ReleasePatch};
use base::url::shown;
use model::release::Payload;
use transfer::download::{Download, Downloader, RetryPolicy};

/// The hint if the server lacks a file or has another one.
const HINT: &str =
    "Check install.medium or --medium; it must name a full medium of the same release, unchanged.";

/// The content of a full medium on a web server.
#[derive(Clone, Debug)]
pub struct HttpMedium {
    directory: HttpDirectory,
}

impl HttpMedium {
    /// The medium whose files are below `base`. These CA certificates (PEM) are trusted too.
    pub fn open(base: &str, authorities: &[String], retry: RetryPolicy) -> Result<Self> {
        let downloader = Downloader::trusting(base, retry, HINT, authorities)?;
        Ok(Self { directory: HttpDirectory::new(base, downloader) })
    }

    fn download(&self, payload: &Payload) -> Download {
        self.directory.file(&payload.path, payload.size)
    }
}

impl PayloadSource for HttpMedium {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        self.open_from(payload, 0)
    }

    fn open_from(&self, payload: &Payload, offset: u64) -> Result<Box<dyn Read + Send>> {
        let mut download = self.download(payload).starting_at(offset);
        // An empty range is not valid in a request.
        if offset < payload.size || payload.size == 0 {
            download.connect_patiently()?;
        }
        Ok(Box::new(download))
    }

    fn place(&self, _: &Payload) -> Option<PayloadPlace> {
        Some(PayloadPlace::Network)
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        // The response header has the length. Of a whole body the server may send megabytes before the connection is closed.
        let last = payload.size.saturating_sub(1);
        Ok(self.download(payload).starting_at(last).connect_patiently()?)
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        self.directory.manifest(MANIFEST_LIMIT)
    }

    fn patches(&self) -> Result<Vec<ReleasePatch>> {
        let Some(list) = self.directory.find(PATCHES)? else { return Ok(Vec::new()) };
        let mut bytes = Vec::new();
        list.take(LIST_LIMIT).read_to_end(&mut bytes)?;
        Ok(PatchList::parse(&bytes)?.patches)
    }

    fn beside(&self, path: &str) -> Result<Option<Box<dyn Read + Send>>> {
        let found = self.directory.find(path)?;
        Ok(found.map(|download| Box::new(download) as Box<dyn Read + Send>))
    }

    fn transport(&self) -> PayloadTransport {
        PayloadTransport::of(self.directory.url())
    }

    fn describe(&self) -> String {
        shown(self.directory.url())
    }
}
