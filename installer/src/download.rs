//! Downloads over HTTP: retries with growing pauses, and resumes where a transfer broke off.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use reqwest::Certificate;
use reqwest::StatusCode;
use reqwest::blocking::{Client, ClientBuilder, Response};
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_RANGE, ETAG, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE,
    RETRY_AFTER,
};

use crate::failure::{Class, Classify, Failure};

pub mod proxies;

/// How long to wait, and how often to try.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection.
    pub connect: Duration,
    /// For the next bytes.
    pub read: Duration,
    /// Attempts in a row that bring no byte, before giving up.
    pub attempts: u32,
    /// The pause after the first failed attempt; each further one is twice as long, up to 30 seconds.
    pub pause: Duration,
    /// For a whole file, all attempts together.
    pub limit: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            read: Duration::from_secs(60),
            attempts: 7,
            pause: Duration::from_secs(1),
            limit: None,
        }
    }
}

impl Patience {
    /// The pause after so many failed attempts in a row (RFC 9110 leaves the choice to the client).
    pub(crate) fn after(&self, failed: u32) -> Duration {
        let factor = 1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
        self.pause.saturating_mul(factor).min(Duration::from_secs(30))
    }
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
        let trust = Trust { authorities: authorities.to_vec(), anyone: false };
        Self::with(url, patience, hint, &trust)
    }

    /// As [`Downloader::new`], for the servers that `trust` says.
    pub fn with(url: &str, patience: Patience, hint: &'static str, trust: &Trust) -> Result<Self> {
        let client = client(url, &trust.authorities, || {
            Client::builder()
                .connect_timeout(patience.connect)
                .timeout(patience.read)
                .tls_danger_accept_invalid_certs(trust.anyone)
                .user_agent(concat!("nqrust/", env!("CARGO_PKG_VERSION")))
        })?;
        Ok(Self { client, patience, hint })
    }

    /// The file at `url`, of `size` bytes, from the byte `position` on.
    #[must_use]
    pub fn open_at(&self, url: &str, size: u64, position: u64) -> Download {
        Download { position, ..self.open(url, Some(size)) }
    }

    /// The file at `url`, of `size` bytes where that is known. Nothing is asked before the first read.
    #[must_use]
    pub fn open(&self, url: &str, size: Option<u64>) -> Download {
        Download {
            url: url.into(),
            from: self.clone(),
            size,
            position: 0,
            failed: 0,
            version: None,
            body: None,
            authorizer: None,
            renewed: false,
            deadline: self.patience.limit.map(|limit| Instant::now() + limit),
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
#[allow(missing_debug_implementations)]
pub struct Download {
    url: Arc<str>,
    from: Downloader,
    /// The length that the file must have; a server that announces another is not read.
    size: Option<u64>,
    position: u64,
    /// Attempts in a row that brought nothing.
    failed: u32,
    /// What names the file's version on the server, for If-Range.
    version: Option<String>,
    body: Option<Response>,
    /// Says who asks.
    authorizer: Option<Arc<dyn Authorize>>,
    /// Whether the authorizer was asked anew since bytes last came.
    renewed: bool,
    /// When to give up whatever comes.
    deadline: Option<Instant>,
}

/// Says who asks a server.
pub trait Authorize: Send + Sync {
    /// The value of the header `Authorization`, if one is needed. `anew` where the server did not accept the last one.
    fn authorization(&self, anew: bool) -> Result<Option<String>, Failure>;
}

/// Which servers to trust.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Certificates (PEM) of authorities beside the machine's.
    pub authorities: Vec<String>,
    /// Whether a server may be anyone.
    pub anyone: bool,
}

/// The cause of a failure where a server does not let this program have what it asks for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the server denies access ({0})")]
pub struct Denied(StatusCode);

/// Whether a server denied access.
#[must_use]
pub fn is_denied(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Denied>())
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

/// The longest that a server may ask a client to wait (`Retry-After`).
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// Whether trying again can help.
enum Trouble {
    /// It can, after so long if the server says.
    Passing(String, Option<Duration>),
    /// It can at once, as someone else.
    Renew,
    Lasting(Failure),
}

impl Trouble {
    fn passing(reason: impl Into<String>) -> Self {
        Self::Passing(reason.into(), None)
    }
}

impl Download {
    /// With other limits than the downloader's.
    #[must_use]
    pub fn patient(mut self, patience: Patience) -> Self {
        self.from.patience = patience;
        self
    }

    /// For a server that wants to know who asks.
    #[must_use]
    pub fn authorized(mut self, authorizer: Arc<dyn Authorize>) -> Self {
        self.authorizer = Some(authorizer);
        self
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
        let (reason, asked) = match trouble {
            Trouble::Lasting(failure) => return Err(failure),
            Trouble::Renew => {
                self.renewed = true;
                return Ok(());
            }
            Trouble::Passing(reason, asked) => (reason, asked),
        };
        self.failed += 1;
        let pause = asked.unwrap_or_else(|| self.from.patience.after(self.failed)).min(LONGEST_PAUSE);
        if self.failed >= self.from.patience.attempts || self.is_late(pause) {
            return Err(self.enough(&format!("{reason}; gave up after {} attempts", self.failed)));
        }
        std::thread::sleep(pause);
        Ok(())
    }

    /// Whether the time for the whole file is over, or will be after a pause.
    fn is_late(&self, pause: Duration) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() + pause >= deadline)
    }

    fn enough(&self, why: &str) -> Failure {
        let what = format!("downloading {} (at byte {})", shown(&self.url), self.position);
        Failure::new(Class::Network, what)
            .because(anyhow::anyhow!("{why}"))
            .hint("Check the network and the server, then start again.")
    }

    fn connect(&mut self) -> Result<(), Trouble> {
        // The bytes of the file are wanted, not a compressed form whose ranges mean something else.
        let mut request = self.from.client.get(&*self.url).header(ACCEPT_ENCODING, "identity");
        if self.position > 0 {
            request = request.header(RANGE, format!("bytes={}-", self.position));
            if let Some(version) = &self.version {
                request = request.header(IF_RANGE, version);
            }
        }
        if let Some(authorizer) = &self.authorizer {
            let value = authorizer.authorization(self.renewed).map_err(Trouble::Lasting)?;
            // A value that is no header would be refused with its text in the error.
            if let Some(mut value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
        }
        let mut response = request.send().map_err(|error| Trouble::passing(reason(&error)))?;
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
            // What let this program in before may have run out.
            StatusCode::UNAUTHORIZED if self.authorizer.is_some() && !self.renewed => Err(Trouble::Renew),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let failure = Failure::new(Class::Network, format!("downloading {}", shown(&self.url)));
                Err(Trouble::Lasting(failure.because(Denied(status)).hint(self.from.hint)))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                let why = format!("the file on the server ends before byte {}", self.position);
                Err(self.lasting(Class::Verification, &why))
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                Err(Trouble::Passing(format!("the server answered {status}"), retry_after(response)))
            }
            _ if status.is_server_error() => {
                Err(Trouble::Passing(format!("the server answered {status}"), retry_after(response)))
            }
            _ => Err(self.lasting(Class::Network, &format!("the server answered {status}"))),
        }
    }

    fn check_length(&self, announced: Option<u64>) -> Result<(), Trouble> {
        match (announced, self.size) {
            (Some(announced), Some(size)) if announced != size => {
                let why = format!("the file on the server has {announced} bytes instead of {size}");
                Err(self.lasting(Class::Verification, &why))
            }
            _ => Ok(()),
        }
    }

    fn lasting(&self, class: Class, why: &str) -> Trouble {
        let failure = Failure::new(class, format!("downloading {}", shown(&self.url)));
        Trouble::Lasting(failure.because(anyhow::anyhow!("{why}")).hint(self.from.hint))
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
                    self.failed = 0;
                    self.renewed = false;
                    if self.is_late(Duration::ZERO) {
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

/// A strong validator: weak ones must not be used for ranges (RFC 9110, 13.1.5).
fn version(response: &Response) -> Option<String> {
    let header = |name| response.headers().get(name)?.to_str().ok().map(str::to_owned);
    header(ETAG).filter(|tag| !tag.starts_with("W/")).or_else(|| header(LAST_MODIFIED))
}

/// How long a server asks to wait, where it says so in seconds (RFC 9110, 10.2.3).
fn retry_after(response: &Response) -> Option<Duration> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
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
    fn pauses_double_and_stop_growing() {
        let patience = Patience::default();
        let seconds = |failed| patience.after(failed).as_secs();
        assert_eq!([seconds(1), seconds(2), seconds(3), seconds(6), seconds(60)], [1, 2, 4, 30, 30]);
    }

    #[test]
    fn credentials_of_a_url_are_not_shown() {
        assert_eq!(shown("http://user:secret@host/a@b"), "http://host/a@b");
        assert_eq!(shown("http://host/a@b"), "http://host/a@b");
        assert_eq!(shown("https://host:8080/x"), "https://host:8080/x");
    }
}
