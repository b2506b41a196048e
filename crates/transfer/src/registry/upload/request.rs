//! One write request.

use std::time::Duration;

use anyhow::Result;
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode, Url};

use crate::download::{Attempts, Passing, body, is_passing, redirect};
use crate::registry::endpoint::Endpoint;
use crate::registry::problem::{Problem, ProblemKind, RequestContext, RequestTrouble};
use crate::registry::scope::Scope;
use crate::registry::site::{CONTENT_DIGEST, REFUSAL, Site};
use base::digest::Digest;
use formats::oci::Repository;

/// The slowest accepted upload, in bytes per second, before a request times out.
const SLOWEST: u64 = 32 << 10;

/// Why an upload failed.
pub(in crate::registry) enum UploadError {
    /// The registry.
    Registry(Problem),
    /// The content cannot be read, or has another digest.
    Content(anyhow::Error),
}

/// Why one request of an upload failed.
pub(super) enum UploadTrouble {
    Passing(Passing),
    Lasting(Problem),
    /// The content cannot be read.
    Content(anyhow::Error),
    /// The registry does not support uploads in pieces.
    Unsupported,
}

impl From<RequestTrouble> for UploadTrouble {
    fn from(trouble: RequestTrouble) -> Self {
        match trouble {
            RequestTrouble::Passing(passing) => Self::Passing(passing),
            RequestTrouble::Lasting(problem) => Self::Lasting(problem),
        }
    }
}

impl From<Problem> for UploadTrouble {
    fn from(problem: Problem) -> Self {
        Self::Lasting(problem)
    }
}

impl From<Problem> for UploadError {
    fn from(problem: Problem) -> Self {
        Self::Registry(problem)
    }
}

impl UploadTrouble {
    pub(super) fn passing(why: impl Into<String>) -> Self {
        Self::Passing(Passing::new(why))
    }
}

/// A repository that is written into.
pub(super) struct Writer<'a> {
    site: &'a Site,
    endpoint: &'a Endpoint,
    scope: Scope,
    /// The base of all request URLs.
    base: Url,
}

impl<'a> Writer<'a> {
    /// For a repository that may mount blobs of `elsewhere`.
    pub(super) fn new(
        site: &'a Site,
        endpoint: &'a Endpoint,
        elsewhere: Option<&Repository>,
    ) -> Result<Self, Problem> {
        let scope = Scope::push(&endpoint.path);
        let scope = match elsewhere {
            Some(repository) => scope.mounting(repository.path()),
            None => scope,
        };
        let base = Url::parse(&site.server().to_string());
        let base = base.map_err(|_| Problem::new(ProblemKind::Strange, "its address is not a valid URL"))?;
        Ok(Self { site, endpoint, scope, base })
    }

    /// The address of a manifest, a blob or the uploads (`kind`).
    pub(super) fn url(&self, kind: &str, reference: &str) -> Result<Url, Problem> {
        let url = self.base.join(&self.endpoint.url(kind, reference));
        url.map_err(|_| Problem::new(ProblemKind::Strange, "its address is not a valid URL"))
    }

    pub(super) fn attempts(&self) -> Attempts {
        self.site.transfer_attempts()
    }

    /// The time limit of a request with so many bytes.
    pub(super) fn time(&self, bytes: u64) -> Duration {
        self.site.read_limit() + Duration::from_secs(bytes / SLOWEST)
    }

    /// Sends what `make` makes, with the login if it goes to the registry itself; once more with a new login where the
    /// first has expired. No redirect is followed.
    pub(super) fn send(
        &self,
        make: &mut dyn FnMut(&Client) -> Result<RequestBuilder, UploadTrouble>,
    ) -> Result<Response, UploadTrouble> {
        let client = self.site.downloader().client();
        let mut grant = self.site.grant(&self.scope)?;
        for renewed in [false, true] {
            let request = make(client)?.build();
            let mut request = request.map_err(|error| {
                RequestTrouble::of_no_answer(redirect::NoAnswer::Request(error.without_url()))
            })?;
            if let Some(value) = grant.as_ref().filter(|_| request.url().origin() == self.base.origin()) {
                request.headers_mut().insert(AUTHORIZATION, value.clone());
            }
            let sent = client.execute(request).map_err(|error| error.without_url());
            let response =
                sent.map_err(|error| RequestTrouble::of_no_answer(redirect::NoAnswer::Request(error)))?;
            if renewed || response.status() != StatusCode::UNAUTHORIZED {
                return Ok(response);
            }
            grant = self.site.renew(&self.scope, grant.as_ref())?;
        }
        Err(UploadTrouble::Lasting(Problem::refused(StatusCode::UNAUTHORIZED.as_u16(), self.asked())))
    }

    fn asked(&self) -> RequestContext {
        RequestContext { writes: true, ..self.site.asked() }
    }

    /// Whether the repository has a blob of this length. A registry that redirects to where it is has it.
    pub(super) fn has(&self, digest: Digest, size: u64) -> Result<bool, UploadTrouble> {
        let url = self.url("blobs", &digest.oci())?;
        let response = self.send(&mut |client| Ok(client.request(Method::HEAD, url.clone())))?;
        match response.status() {
            status if status.is_redirection() => Ok(true),
            StatusCode::OK => {
                let length = response.headers().get(CONTENT_LENGTH);
                let length: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
                Ok(length.is_none_or(|length| length == size))
            }
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(false),
            _ => Err(self.trouble(response)),
        }
    }

    /// The error of an unexpected response.
    pub(super) fn trouble(&self, response: Response) -> UploadTrouble {
        if !is_passing(response.status()) {
            return UploadTrouble::Lasting(self.refusal(response));
        }
        let (status, headers) = (response.status(), response.headers().clone());
        // A full disk is reported as a server error with an explanation in the body.
        let said = self.refusal(response);
        let why = match said.kind {
            ProblemKind::Strange | ProblemKind::Full => said.why,
            _ => format!("it answered {status}"),
        };
        match said.kind {
            ProblemKind::Full => UploadTrouble::Lasting(Problem::new(ProblemKind::Full, why)),
            _ => UploadTrouble::Passing(Passing::new(why).asking(&headers)),
        }
    }

    /// The problem that a refusal describes.
    pub(super) fn refusal(&self, response: Response) -> Problem {
        let status = response.status();
        let told = body(response, REFUSAL, &self.attempts()).unwrap_or_default();
        match status {
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::INSUFFICIENT_STORAGE => {
                Problem::of_status(status, self.asked())
            }
            _ => Problem::told(status, &told, self.asked()),
        }
    }

    pub(super) fn bear(&self, attempts: &mut Attempts, trouble: UploadTrouble) -> Result<(), UploadError> {
        let trouble = match trouble {
            UploadTrouble::Content(error) => return Err(UploadError::Content(error)),
            UploadTrouble::Unsupported => {
                RequestTrouble::Lasting(Problem::new(ProblemKind::Strange, "it does not accept uploads"))
            }
            UploadTrouble::Passing(passing) => RequestTrouble::Passing(passing),
            UploadTrouble::Lasting(problem) => RequestTrouble::Lasting(problem),
        };
        self.site.bear(attempts, trouble).map_err(UploadError::Registry)
    }

    /// The address of the next request of an upload, relative to that of the last one.
    pub(super) fn next(&self, response: &Response) -> Result<Option<Url>, Problem> {
        let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
        let strange = |why: &str| Problem::new(ProblemKind::Redirect, why);
        let location = location.to_str().ok().and_then(|location| response.url().join(location).ok());
        let location = location.filter(|url| matches!(url.scheme(), "http" | "https"));
        let location = location
            .ok_or_else(|| strange("it redirects uploads to something that is not an http or https URL"))?;
        match self.base.scheme() == "https" && location.scheme() != "https" {
            true => {
                Err(strange("it redirects uploads to an address without TLS, where others could read them"))
            }
            false => Ok(Some(location)),
        }
    }

    /// Fails if the registry reports another digest.
    pub(super) fn check_digest(&self, response: &Response, wanted: Digest) -> Result<(), Problem> {
        let named = |value: &HeaderValue| value.to_str().ok()?.parse::<Digest>().ok();
        let found = response.headers().get(CONTENT_DIGEST).and_then(named);
        match found.filter(|found| *found != wanted) {
            None => Ok(()),
            Some(found) => Err(Problem::new(
                ProblemKind::Damaged,
                format!("what it received has the digest {} instead of {}", found.oci(), wanted.oci()),
            )),
        }
    }
}
