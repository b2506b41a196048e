//! Downloads over HTTP: retries with growing pauses, and resumes where a transfer broke off.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use reqwest::Certificate;
use reqwest::StatusCode;
use reqwest::blocking::{Client, ClientBuilder, Response};
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, ETAG, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE,
};

use crate::failure::{Class, Classify, Failure};

mod patience;
pub mod proxies;

pub use patience::Patience;
pub(crate) use patience::{Attempts, Passing};

/// What a server that wants to know who asks is told.
///
/// The header goes with requests to the server that was named; a server that it redirects to does not get it.
pub(crate) trait Authoriser: Send + Sync {
    /// The header for a request, if there is to be one.
    fn authorization(&self) -> Result<Option<HeaderValue>, Failure>;

    /// The header after the server refused this one (401), which may have expired.
    fn renew(&self, refused: Option<&HeaderValue>) -> Result<Option<HeaderValue>, Failure>;
}

/// A client for URLs that begin like `url`, for servers that the authorities of these certificates (PEM) vouch
/// for too. Proxies are those of the configuration ([`proxies`]) or else of the environment.
pub fn client(url: &str, authorities: &[String], builder: impl Fn() -> ClientBuilder) -> Result<Client> {
    let extra = authorities.iter().map(|pem| Certificate::from_pem_bundle(pem.as_bytes()));
    let extra = extra
        .collect::<Result<Vec<_>, _>>()
        .class(Class::Invalid, || "reading install.ca_certificates".into())?;
    let extra = extra.concat();
    // The provider is the process's; that it is set already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || proxies::apply(builder());
    let built = match extra.is_empty() {
        true => builder().build(),
        false => builder().tls_certs_merge(extra.clone()).build(),
    };
    let client = match built {
        // Without certificates on the machine no client can be made; plain HTTP needs none, and those that are
        // given may be enough.
        Err(_) if url.starts_with("http://") || !extra.is_empty() => {
            builder().tls_certs_only(extra.clone()).build()
        }
        built => built,
    };
    client.class(Class::Network, || format!("preparing to ask {}", shown(url)))
}

/// Opens downloads; clones share connections.
#[derive(Clone, Debug)]
pub struct Downloader {
    client: Client,
    patience: Patience,
    /// What to do when a server does not have a file.
    hint: &'static str,
}

impl Downloader {
    /// For URLs that begin like `url`. `hint` tells a user what to do when a file does not exist.
    pub fn new(url: &str, patience: Patience, hint: &'static str) -> Result<Self> {
        Self::trusting(url, patience, hint, &[])
    }

    /// As [`Downloader::new`], for servers that the authorities of these certificates (PEM) vouch for too.
    pub fn trusting(
        url: &str,
        patience: Patience,
        hint: &'static str,
        authorities: &[String],
    ) -> Result<Self> {
        let client = client(url, authorities, || {
            Client::builder()
                .connect_timeout(patience.connect)
                .timeout(patience.read)
                .user_agent(concat!("nqrust/", env!("CARGO_PKG_VERSION")))
        })?;
        Ok(Self::over(client, patience, hint))
    }

    /// Over a client that is there already.
    pub(crate) fn over(client: Client, patience: Patience, hint: &'static str) -> Self {
        Self { client, patience, hint }
    }

    /// The client, for requests that are no downloads.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The file at `url`, of `size` bytes where that is known. Nothing is asked before the first read.
    #[must_use]
    pub fn open(&self, url: &str, size: Option<u64>) -> Download {
        Download {
            url: url.into(),
            from: self.clone(),
            size,
            position: 0,
            attempts: Attempts::new(self.patience),
            version: None,
            body: None,
            authoriser: None,
            renewed: false,
            status: None,
        }
    }
}

/// A URL without the credentials that it may carry, and without a slash at its end.
#[must_use]
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{}", path.trim_end_matches('/'))
}

/// One file on its way. Reading goes on over broken connections until the file is complete.
pub struct Download {
    url: Arc<str>,
    from: Downloader,
    /// The length that the file must have; a server that announces another is not read.
    size: Option<u64>,
    position: u64,
    attempts: Attempts,
    /// What names the file's version on the server, for If-Range.
    version: Option<String>,
    body: Option<Response>,
    authoriser: Option<Arc<dyn Authoriser>>,
    /// Whether the header for the server has been renewed since the last byte came.
    renewed: bool,
    /// The status of the last answer that was not what was asked for.
    status: Option<StatusCode>,
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = shown(&self.url);
        f.debug_struct("Download")
            .field("url", &url)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// The cause of a failure where a server answers and does not have what it is asked for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it does not exist (404)")]
pub struct Absent;

/// Whether a server said that it does not have the thing.
#[must_use]
pub fn is_absent(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Absent>())
}

/// Whether trying again can help.
enum Trouble {
    Passing(Passing),
    Lasting(Failure),
}

impl Trouble {
    fn passing(why: impl Into<String>) -> Self {
        Self::Passing(Passing::new(why))
    }
}

impl Download {
    /// Without the bytes before `offset`.
    #[must_use]
    pub(crate) fn starting_at(mut self, offset: u64) -> Self {
        self.position = offset;
        self
    }

    /// From a server that wants to know who asks.
    #[must_use]
    pub(crate) fn authorised(mut self, authoriser: Arc<dyn Authoriser>) -> Self {
        self.authoriser = Some(authoriser);
        self
    }

    /// The next byte to be read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The status of the last answer that was not what was asked for.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Connects now, however often that has to be tried.
    pub fn connect_patiently(&mut self) -> Result<(), Failure> {
        loop {
            match self.connect() {
                Ok(()) => return Ok(()),
                Err(trouble) => self.bear(trouble)?,
            }
        }
    }

    /// Waits after passing trouble; gives up on lasting trouble, and on passing trouble that does not pass.
    fn bear(&mut self, trouble: Trouble) -> Result<(), Failure> {
        self.body = None;
        match trouble {
            Trouble::Lasting(failure) => Err(failure),
            Trouble::Passing(trouble) => self.attempts.pause(trouble).map_err(|why| self.enough(&why)),
        }
    }

    fn enough(&self, why: &str) -> Failure {
        let what = format!("downloading {} (at byte {})", shown(&self.url), self.position);
        Failure::new(Class::Network, what)
            .because(anyhow::anyhow!("{why}"))
            .hint("Check the network and the server, then start again.")
    }

    fn connect(&mut self) -> Result<(), Trouble> {
        let header = match &self.authoriser {
            Some(authoriser) => authoriser.authorization().map_err(Trouble::Lasting)?,
            None => None,
        };
        let mut response = self.ask(header.as_ref())?;
        if let Some(authoriser) = &self.authoriser
            && response.status() == StatusCode::UNAUTHORIZED
            && !self.renewed
        {
            self.renewed = true;
            let header = authoriser.renew(header.as_ref()).map_err(Trouble::Lasting)?;
            response = self.ask(header.as_ref())?;
        }
        self.status = (!response.status().is_success()).then(|| response.status());
        let skip = self.accept(&response)?;
        self.version = version(&response).or(self.version.take());
        if skip > 0 {
            let skipped = io::copy(&mut (&mut response).take(skip), &mut io::sink());
            if skipped.map_err(|error| Trouble::passing(reason(&error)))? < skip {
                return Err(Trouble::passing("the connection broke off"));
            }
        }
        self.body = Some(response);
        Ok(())
    }

    /// Asks for the rest of the file.
    fn ask(&self, header: Option<&HeaderValue>) -> Result<Response, Trouble> {
        // The bytes of the file are wanted, not a compressed form whose ranges mean something else.
        let mut request = self.from.client.get(&*self.url).header(ACCEPT_ENCODING, "identity");
        if self.position > 0 {
            request = request.header(RANGE, format!("bytes={}-", self.position));
            if let Some(version) = &self.version {
                request = request.header(IF_RANGE, version);
            }
        }
        if let Some(header) = header {
            request = request.header(AUTHORIZATION, header);
        }
        // Where a server redirects to may be a secret: signed addresses are.
        request.send().map_err(reqwest::Error::without_url).map_err(|error| match is_distrusted(&error) {
            true => self.lasting(Class::Network, Distrusted(reason(&error))),
            false => Trouble::passing(reason(&error)),
        })
    }

    /// Judges the head of an answer; returns how many bytes of its body are known already.
    fn accept(&self, response: &Response) -> Result<u64, Trouble> {
        let status = response.status();
        match status {
            StatusCode::OK => {
                self.check_length(response.content_length())?;
                // The server ignores ranges, or the file has changed; the digest decides about the latter.
                Ok(self.position)
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
                let (start, total) = range.and_then(content_range).unwrap_or((0, None));
                self.check_length(total)?;
                match start == self.position {
                    true => Ok(0),
                    false => {
                        Err(self
                            .lasting(Class::Network, "the server answered with another range than asked for"))
                    }
                }
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                let failure = Failure::new(Class::Network, format!("{} is not there", shown(&self.url)));
                Err(Trouble::Lasting(failure.because(Absent).hint(self.from.hint)))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                let why = format!("the file on the server ends before byte {}", self.position);
                Err(self.lasting(Class::Verification, why))
            }
            _ if is_passing(status) => {
                let trouble = Passing::new(format!("the server answered {status}"));
                Err(Trouble::Passing(trouble.asking(response.headers())))
            }
            _ => Err(self.lasting(Class::Network, format!("the server answered {status}"))),
        }
    }

    fn check_length(&self, announced: Option<u64>) -> Result<(), Trouble> {
        match (announced, self.size) {
            (Some(announced), Some(size)) if announced != size => {
                let why = format!("the file on the server has {announced} bytes instead of {size}");
                Err(self.lasting(Class::Verification, why))
            }
            _ => Ok(()),
        }
    }

    fn lasting(&self, class: Class, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Trouble {
        let failure = Failure::new(class, format!("downloading {}", shown(&self.url)));
        Trouble::Lasting(failure.because(why).hint(self.from.hint))
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.size == Some(self.position) {
            return Ok(0);
        }
        loop {
            let Some(body) = &mut self.body else {
                self.connect_patiently().map_err(io::Error::other)?;
                continue;
            };
            let trouble = match body.read(buffer) {
                // A body without an announced length may end early and say nothing.
                Ok(0) if self.size.is_some() => Trouble::passing("the connection broke off"),
                Ok(0) => return Ok(0),
                Ok(count) => {
                    let left = self.size.map_or(u64::MAX, |size| size - self.position);
                    let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.position += count as u64;
                    self.attempts.succeeded();
                    self.renewed = false;
                    if self.attempts.is_late(Duration::ZERO) {
                        let why = self.enough("it takes longer than a file of this kind may take");
                        return Err(io::Error::other(why));
                    }
                    return Ok(count);
                }
                Err(error) => Trouble::passing(reason(&error)),
            };
            self.bear(trouble).map_err(io::Error::other)?;
        }
    }
}

/// An error with its causes, each once, without the URL that the message around it names already.
pub(crate) fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let last = causes.last().map(ToString::to_string);
    last.unwrap_or_default()
}

/// Whether an answer with this status may be another one later.
pub(crate) fn is_passing(status: StatusCode) -> bool {
    matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) || status.is_server_error()
}

/// The certificate of a server is not trusted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Distrusted(String);

/// Whether a server's certificate is one that trying again does not make better. Dates may still become right: a
/// machine's clock is set late.
pub(crate) fn is_distrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    use rustls::CertificateError as Certificate;
    let causes = std::iter::successors(Some(error), |error| error.source());
    let certificate = causes.filter_map(carried).find_map(|error| match error {
        rustls::Error::InvalidCertificate(why) => Some(why),
        _ => None,
    });
    matches!(
        certificate,
        Some(
            Certificate::UnknownIssuer
                | Certificate::NotValidForName
                | Certificate::NotValidForNameContext { .. }
                | Certificate::Revoked
        )
    )
}

/// The TLS error that an error is or carries: an I/O error made from another one leaves it out of the chain of causes,
/// and there may be several of them, one in the other.
pub(crate) fn carried<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = || carried(error.downcast_ref::<io::Error>()?.get_ref()?);
    error.downcast_ref().or_else(inner)
}

/// A strong validator: weak ones must not be used for ranges (RFC 9110, 13.1.5).
fn version(response: &Response) -> Option<String> {
    let header = |name| response.headers().get(name)?.to_str().ok().map(str::to_owned);
    header(ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| header(LAST_MODIFIED))
}

/// First byte and total length of a `Content-Range`.
fn content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.parse().ok()?, total.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_a_url_are_not_shown() {
        assert_eq!(shown("http://user:secret@host/a@b"), "http://host/a@b");
        assert_eq!(shown("http://host/a@b"), "http://host/a@b");
        assert_eq!(shown("https://host:8080/x"), "https://host:8080/x");
    }
}
