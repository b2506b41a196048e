//! Opens downloads. Documents and files of any size are in files of their own.

use anyhow::Result;
use reqwest::blocking::Client;
use reqwest::header::HeaderValue;

use super::client::client;
use super::retry::RetryPolicy;
use base::failure::Failure;

/// Gives the `Authorization` header for a server.
///
/// The header goes with requests to the origin that was named; no server that it redirects to gets it ([`redirect`](super::redirect)).
pub trait Authorizer: Send + Sync {
    /// The header for a request; none if the server needs no login.
    fn authorization(&self) -> Result<Option<HeaderValue>, Failure>;

    /// A new header, after the server refused this one (401), which may have expired.
    fn renew(&self, refused: Option<&HeaderValue>) -> Result<Option<HeaderValue>, Failure>;
}

/// Opens downloads; clones share connections.
#[derive(Clone, Debug)]
pub struct Downloader {
    pub(super) client: Client,
    pub(super) retry: RetryPolicy,
    /// The hint of the error if the server does not have a file.
    pub(super) hint: &'static str,
}

impl Downloader {
    /// For URLs that begin like `url`. `hint` tells a user what to do when a file does not exist.
    pub fn new(url: &str, retry: RetryPolicy, hint: &'static str) -> Result<Self> {
        Self::trusting(url, retry, hint, &[])
    }

    /// As [`Downloader::new`], for servers that the authorities of these certificates (PEM) vouch for too.
    pub fn trusting(
        url: &str,
        retry: RetryPolicy,
        hint: &'static str,
        authorities: &[String],
    ) -> Result<Self> {
        let builder = || Client::builder().connect_timeout(retry.connect).timeout(retry.read);
        let client = client(url, authorities, builder)?;
        Ok(Self::over(client, retry, hint))
    }

    pub fn over(client: Client, retry: RetryPolicy, hint: &'static str) -> Self {
        Self { client, retry, hint }
    }

    /// The client, for requests that are no downloads.
    pub fn client(&self) -> &Client {
        &self.client
    }
}
