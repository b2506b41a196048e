//! One write request.

use std::time::Duration;

use anyhow::Result;
use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode, Url};

use crate::download::{Attempts, TemporaryError, body, is_temporary, redirect};
use crate::registry::endpoint::Endpoint;
use crate::registry::problem::{Problem, ProblemKind, RegistryRequestError, RequestContext};
use crate::registry::scope::RegistryScope;
use crate::registry::site::{CONTENT_DIGEST, REFUSAL, Site};
use base::digest::Digest;
use formats::oci::Repository;

/// The slowest accepted upload, in bytes per second, before a request times out.
const SLOWEST: u64 = 32 << 10;

pub(in crate::registry) enum UploadError {
    Registry(Problem),
    /// The content cannot be read, or has another digest.
    Content(anyhow::Error),
}

/// Why one request of an upload failed.
pub(super) enum UploadRequestError {
    Temporary(TemporaryError),
    Permanent(Problem),
    Content(anyhow::Error),
    /// The registry does not support uploads in pieces.
    Unsupported,
}

impl From<RegistryRequestError> for UploadRequestError {
    fn from(trouble: RegistryRequestError) -> Self {
        match trouble {
            RegistryRequestError::Temporary(temporary) => Self::Temporary(temporary),
            RegistryRequestError::Permanent(problem) => Self::Permanent(problem),
        }
    }
}

impl From<Problem> for UploadRequestError {
    fn from(problem: Problem) -> Self {
        Self::Permanent(problem)
    }
}

impl From<Problem> for UploadError {
    fn from(problem: Problem) -> Self {
        Self::Registry(problem)
    }
}

impl UploadRequestError {
    pub(super) fn temporary(why: impl Into<String>) -> Self {
        Self::Temporary(TemporaryError::new(why))
    }
}

/// A repository that is written into.
pub(super) struct RepositoryWriter<'a> {
    site: &'a Site,
    endpoint: &'a Endpoint,
    scope: RegistryScope,
    base: Url,
}

impl<'a> RepositoryWriter<'a> {
    /// For a repository that may mount blobs of `elsewhere`.
    pub(super) fn new(
        site: &'a Site,
        endpoint: &'a Endpoint,
        elsewhere: Option<&Repository>,
    ) -> Result<Self, Problem> {
        let scope = RegistryScope::push(&endpoint.path);
        let scope = match elsewhere {
            Some(repository) => scope.mounting(repository.path()),
            None => scope,
        };
        Self::with_scope(site, endpoint, scope)
    }

    /// For a repository whose manifests are removed.
    pub(super) fn deleting(site: &'a Site, endpoint: &'a Endpoint) -> Result<Self, Problem> {
        Self::with_scope(site, endpoint, RegistryScope::delete(&endpoint.path))
    }

    fn with_scope(site: &'a Site, endpoint: &'a Endpoint, scope: RegistryScope) -> Result<Self, Problem> {
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
        make: &mut dyn FnMut(&Client) -> Result<RequestBuilder, UploadRequestError>,
    ) -> Result<Response, UploadRequestError> {
        let client = self.site.downloader().client();
        let mut grant = self.site.grant(&self.scope)?;
        for renewed in [false, true] {
            let request = make(client)?.build();
            let mut request = request.map_err(|error| {
                RegistryRequestError::of_no_answer(redirect::RequestError::Request(error.without_url()))
            })?;
            if let Some(value) = grant.as_ref().filter(|_| request.url().origin() == self.base.origin()) {
                request.headers_mut().insert(AUTHORIZATION, value.clone());
            }
            let sent = client.execute(request).map_err(|error| error.without_url());
            let response = sent.map_err(|error| {
                RegistryRequestError::of_no_answer(redirect::RequestError::Request(error))
            })?;
            if renewed || response.status() != StatusCode::UNAUTHORIZED {
                return Ok(response);
            }
            grant = self.site.renew(&self.scope, grant.as_ref())?;
        }
        Err(UploadRequestError::Permanent(Problem::refused(StatusCode::UNAUTHORIZED.as_u16(), self.asked())))
    }

    fn asked(&self) -> RequestContext {
        RequestContext { writes: true, ..self.site.asked() }
    }

    /// True if the repository has a blob of this length. A registry that redirects to where it is has it.
    pub(super) fn has(&self, digest: Digest, size: u64) -> Result<bool, UploadRequestError> {
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

    pub(super) fn trouble(&self, response: Response) -> UploadRequestError {
        if !is_temporary(response.status()) {
            return UploadRequestError::Permanent(self.refusal(response));
        }
        let (status, headers) = (response.status(), response.headers().clone());
        // A full disk is reported as a server error with an explanation in the body.
        let said = self.refusal(response);
        let why = match said.kind {
            ProblemKind::Strange | ProblemKind::Full => said.why,
            _ => format!("it answered {status}"),
        };
        match said.kind {
            ProblemKind::Full => UploadRequestError::Permanent(Problem::new(ProblemKind::Full, why)),
            _ => UploadRequestError::Temporary(TemporaryError::new(why).asking(&headers)),
        }
    }

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

    pub(super) fn bear(
        &self,
        attempts: &mut Attempts,
        trouble: UploadRequestError,
    ) -> Result<(), UploadError> {
        let trouble = match trouble {
            UploadRequestError::Content(error) => return Err(UploadError::Content(error)),
            UploadRequestError::Unsupported => RegistryRequestError::Permanent(Problem::new(
                ProblemKind::Strange,
                "it does not accept uploads",
            )),
            UploadRequestError::Temporary(temporary) => RegistryRequestError::Temporary(temporary),
            UploadRequestError::Permanent(problem) => RegistryRequestError::Permanent(problem),
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
