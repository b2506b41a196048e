//! Files of any size, read as they arrive and resumed after broken connections.
//!
//! After a broken connection the rest is requested. Whether that rest may be of another version of the file depends on the
//! reader: [`ResumeCheck::Digest`] goes on whatever the server says, for a mixture has another digest than the one that
//! the reader expects; [`ResumeCheck::Confirmed`] goes on only where the server confirms by a strong validator (RFC 9110,
//! 8.8.1 and 13.1.5) that it is the same file, and else ends with an error.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use reqwest::blocking::Response;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE,
};

use super::cause::reason;
use super::downloader::{Authorizer, Downloader};
use super::progress_rule::ProgressRule;
use super::redirect;
use super::retry::Attempts;
use super::transfer_error::{self, TransferError};
use base::failure::{Class, Failure};
use base::url::shown;

/// The most bytes that are skipped in one read.
const SKIPPED: u64 = 64 << 10;

/// How it is ensured that a resumed transfer has one version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResumeCheck {
    /// The reader knows the digest of the whole and checks it.
    Digest,
    /// The server has to confirm it.
    Confirmed,
}

impl Downloader {
    /// The file at `url`, of `size` bytes where that is known, for a reader that knows its digest and checks it at the
    /// end: a resumed transfer may hold parts of two versions. No request is made before the first read.
    #[must_use]
    pub fn open(&self, url: &str, size: Option<u64>) -> Download {
        self.download(url, size, ResumeCheck::Digest)
    }

    /// The file at `url`, whose digest is not known. Reading fails where the connection breaks off and the server does
    /// not confirm that it still has the same file. No request is made before the first read.
    #[must_use]
    pub fn stream(&self, url: &str) -> Download {
        self.download(url, None, ResumeCheck::Confirmed)
    }

    /// The bytes of `range` of the file at `url`, for a reader that checks them: a resumed transfer may hold parts of two versions.
    /// A server that sends whole files only is an error, [`Class::Network`]. No request is made before the first read.
    #[must_use]
    pub fn part(&self, url: &str, range: Range<u64>) -> Download {
        let download = self.download(url, None, ResumeCheck::Digest).starting_at(range.start);
        Download { end: Some(range.end), ..download }
    }

    fn download(&self, url: &str, size: Option<u64>, same: ResumeCheck) -> Download {
        Download {
            url: url.into(),
            from: self.clone(),
            size,
            end: None,
            total: None,
            same,
            position: 0,
            attempts: Attempts::new(self.retry, url),
            rule: ProgressRule::default(),
            validator: None,
            body: None,
            authorizer: None,
            renewed: false,
            status: None,
        }
    }
}

/// A file that is being downloaded. Reading resumes after broken connections until the file is complete.
pub struct Download {
    url: Arc<str>,
    from: Downloader,
    /// The length that the file must have; a server that announces another is not read.
    size: Option<u64>,
    /// Where the part that is asked for ends; none for the whole file.
    end: Option<u64>,
    /// The length of the file, as the server told it with a part.
    total: Option<u64>,
    same: ResumeCheck,
    position: u64,
    attempts: Attempts,
    rule: ProgressRule,
    /// The validator of the file's version, for If-Range.
    validator: Option<String>,
    body: Option<Response>,
    authorizer: Option<Arc<dyn Authorizer>>,
    /// True if the header for the server has been renewed since the last byte came.
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

impl Download {
    /// Without the bytes before `offset`.
    #[must_use]
    pub fn starting_at(mut self, offset: u64) -> Self {
        self.position = offset;
        self
    }

    #[must_use]
    pub fn authorized(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.authorizer = Some(authorizer);
        self
    }

    /// The length of the whole file, once the server has sent a part of it and told it.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// The next byte to be read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The status of the last answer that was not what was asked for.
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Connects now, with as many attempts as the policy allows.
    pub fn connect_patiently(&mut self) -> Result<(), Failure> {
        loop {
            match self.connect() {
                Ok(()) => return Ok(()),
                Err(trouble) => self.bear(trouble)?,
            }
        }
    }

    /// Waits before the next attempt; fails where another attempt does not help, and after the last attempt.
    fn bear(&mut self, trouble: TransferError) -> Result<(), Failure> {
        self.body = None;
        match trouble {
            TransferError::Permanent(failure) => Err(failure),
            TransferError::Temporary(_) if self.needs_confirmation() && self.validator.is_none() => {
                let why =
                    "the connection broke off, and the server does not name the version of the file (ETag)";
                Err(self.not_the_same(why))
            }
            TransferError::Temporary(trouble) => {
                self.attempts.pause(trouble).map_err(|why| self.enough(&why))
            }
        }
    }

    fn enough(&self, why: &str) -> Failure {
        transfer_error::given_up(format!("downloading {} (at byte {})", shown(&self.url), self.position), why)
    }

    /// True if the server has to confirm that what it sends next belongs to what was read.
    fn needs_confirmation(&self) -> bool {
        self.same == ResumeCheck::Confirmed && self.position > 0
    }

    fn not_the_same(&self, why: &str) -> Failure {
        let what = format!("downloading {} (at byte {})", shown(&self.url), self.position);
        Failure::new(Class::Network, what)
            .because(anyhow::anyhow!("{why}"))
            .hint("Leave the file on the server as it is while it is transferred, and start again.")
    }

    fn connect(&mut self) -> Result<(), TransferError> {
        let header = match &self.authorizer {
            Some(authorizer) => authorizer.authorization().map_err(TransferError::Permanent)?,
            None => None,
        };
        let mut response = self.ask(header.as_ref())?;
        if let Some(authorizer) = &self.authorizer
            && response.status() == StatusCode::UNAUTHORIZED
            && !self.renewed
        {
            self.renewed = true;
            let header = authorizer.renew(header.as_ref()).map_err(TransferError::Permanent)?;
            response = self.ask(header.as_ref())?;
        }
        self.status = (!response.status().is_success()).then(|| response.status());
        let skip = self.accept(&response)?;
        self.validator = self.validator_of(&response).or(self.validator.take().filter(|_| self.position > 0));
        self.skip(&mut response, skip)?;
        let end = self.end.or(self.size).or(self.total);
        self.rule.connected(end.map(|end| end.saturating_sub(self.position)));
        self.body = Some(response);
        Ok(())
    }

    /// Skips bytes that were read already.
    fn skip(&mut self, response: &mut Response, mut left: u64) -> Result<(), TransferError> {
        let mut buffer = vec![0; usize::try_from(left.min(SKIPPED)).unwrap_or_default()];
        while left > 0 {
            let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
            match self.receive(response, &mut buffer[..most])? {
                0 => return Err(TransferError::temporary("the connection broke off")),
                count => left -= count as u64,
            }
        }
        Ok(())
    }

    /// The next bytes of a response, unless the server is too slow.
    fn receive(&mut self, response: &mut Response, buffer: &mut [u8]) -> Result<usize, TransferError> {
        let begun = Instant::now();
        let read = response.read(buffer);
        let count = *read.as_ref().unwrap_or(&0);
        if let Err(why) = self.rule.waited(begun.elapsed(), count as u64) {
            return Err(TransferError::Permanent(self.enough(&why)));
        }
        read.map_err(|error| TransferError::temporary(reason(&error)))
    }

    fn ask(&self, header: Option<&HeaderValue>) -> Result<Response, TransferError> {
        let mut headers = HeaderMap::new();
        // Ranges of a compressed form would be other bytes.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.position > 0 || self.end.is_some() {
            // The last byte of a range belongs to it (RFC 9110, 14.1.2).
            let last = self.end.map(|end| end.saturating_sub(1).to_string()).unwrap_or_default();
            let range = HeaderValue::from_str(&format!("bytes={}-{last}", self.position));
            headers.extend(range.ok().map(|range| (RANGE, range)));
            let validator = self.validator.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
            headers.extend(validator.map(|validator| (IF_RANGE, validator)));
        }
        redirect::get(&self.from.client, &self.url, &headers, header)
            .map_err(|why| transfer_error::of_no_answer(&self.url, self.from.hint, why))
    }

    /// Checks the head of a response; returns how many bytes of its body were read already.
    fn accept(&mut self, response: &Response) -> Result<u64, TransferError> {
        let status = response.status();
        match status {
            StatusCode::OK => {
                self.check_length(response.content_length())?;
                if self.end.is_some() {
                    return Err(self.permanent(
                        Class::Network,
                        "the server sends whole files only: it does not support HTTP range requests",
                    ));
                }
                // The server ignores ranges, or the file has changed; the digest decides about the latter.
                if self.needs_confirmation() {
                    let why = "the server sent the file from its beginning, so the file has changed";
                    return Err(TransferError::Permanent(self.not_the_same(why)));
                }
                Ok(self.position)
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
                let (start, total) = range.and_then(content_range).unwrap_or((0, None));
                self.check_length(total)?;
                self.total = total.or(self.total);
                let found = self.validator_of(response);
                if self.needs_confirmation() && (found.is_none() || found != self.validator) {
                    let why = "the server continued with another version of the file";
                    return Err(TransferError::Permanent(self.not_the_same(why)));
                }
                match start == self.position {
                    true => Ok(0),
                    false => Err(self
                        .permanent(Class::Network, "the server answered with another range than requested")),
                }
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                let why = format!("the file on the server ends before byte {}", self.position);
                Err(self.permanent(Class::Verification, why))
            }
            _ => Err(transfer_error::of_status(&self.url, self.from.hint, response)),
        }
    }

    /// The header that names the version of the file: a strong `ETag`, for a weak one must not be used for ranges
    /// (RFC 9110, 13.1.5). A date names it well enough where the digest decides in the end.
    fn validator_of(&self, response: &Response) -> Option<String> {
        let header = |name| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let date = || header(LAST_MODIFIED).filter(|_| self.same == ResumeCheck::Digest);
        header(ETAG).filter(|tag| !tag.starts_with("W/")).or_else(date)
    }

    fn check_length(&self, announced: Option<u64>) -> Result<(), TransferError> {
        match (announced, self.size) {
            (Some(announced), Some(size)) if announced != size => {
                let why = format!("the file on the server has {announced} bytes instead of {size}");
                Err(self.permanent(Class::Verification, why))
            }
            _ => Ok(()),
        }
    }

    fn permanent(
        &self,
        class: Class,
        why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> TransferError {
        transfer_error::permanent(&self.url, self.from.hint, class, why)
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.end.or(self.size);
        if buffer.is_empty() || end == Some(self.position) {
            return Ok(0);
        }
        loop {
            let Some(mut body) = self.body.take() else {
                self.connect_patiently().map_err(io::Error::other)?;
                continue;
            };
            let received = self.receive(&mut body, buffer);
            self.body = Some(body);
            let trouble = match received {
                // A body without an announced length may end early and say nothing.
                Ok(0) if end.is_some() => TransferError::temporary("the connection broke off"),
                Ok(0) => return Ok(0),
                Ok(count) => {
                    let left = end.map_or(u64::MAX, |end| end - self.position);
                    let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
                    self.position += count as u64;
                    if self.rule.has_helped(count as u64) {
                        self.attempts.succeeded();
                    }
                    self.renewed = false;
                    if self.attempts.is_late(Duration::ZERO) {
                        let why = self.enough("the transfer timed out");
                        return Err(io::Error::other(why));
                    }
                    return Ok(count);
                }
                Err(trouble) => trouble,
            };
            self.bear(trouble).map_err(io::Error::other)?;
        }
    }
}

/// First byte and total length of a `Content-Range`.
fn content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.parse().ok()?, total.parse().ok()))
}
