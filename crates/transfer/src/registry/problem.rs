//! Why endpoints failed, and the one error for the user.

use std::error::Error as _;

use reqwest::StatusCode;
use reqwest::blocking::Response;
use serde::Deserialize;

use super::endpoint::Server;
use crate::download::redirect::{RedirectError, RequestError};
use crate::download::{
    BodyError, ConnectionError, ConnectionFault, Download, EXPIRED, TemporaryError, is_temporary, reason,
};
use base::digest::Digest;
use base::failure::{Class, Failure};

/// The kind of a problem, which decides the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProblemKind {
    Missing,
    /// A login is required, or the one that was sent is not sufficient.
    Refused,
    /// No usable response after all retries.
    Silent,
    Distrusted,
    /// Its certificate has expired.
    Expired,
    /// It does not speak TLS.
    Clear,
    /// The content has another digest.
    Damaged,
    /// A response that cannot be interpreted.
    Strange,
    /// No room for the upload.
    Full,
    Redirect,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct Problem {
    pub(super) kind: ProblemKind,
    pub(super) why: String,
}

/// The login and purpose of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestContext {
    /// True if user name and password were sent.
    pub(super) login: bool,
    /// True if the request writes to a repository.
    pub(super) writes: bool,
}

pub(super) enum RegistryRequestError {
    Temporary(TemporaryError),
    Permanent(Problem),
}

impl Problem {
    pub(super) fn new(kind: ProblemKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    pub(super) fn refused(status: u16, asked: RequestContext) -> Self {
        let verb = if asked.writes { "write to" } else { "read" };
        let past = if asked.writes { "written to" } else { "read" };
        let why = match (status, asked.login) {
            (401, true) => "it does not accept the user name and the password (401)".into(),
            (401, false) => "it requires a login, or the repository does not exist (401)".into(),
            (_, true) => format!("the user may not {verb} this repository ({status})"),
            (_, false) => format!("this repository may not be {past} without a login ({status})"),
        };
        Self::new(ProblemKind::Refused, why)
    }

    pub(super) fn of_status(status: StatusCode, asked: RequestContext) -> Self {
        match status.as_u16() {
            code @ (401 | 403 | 407) => Self::refused(code, asked),
            404 | 410 if asked.writes => {
                Self::new(ProblemKind::Missing, "it does not have this repository, or takes no uploads (404)")
            }
            code @ (413 | 507) => {
                Self::new(ProblemKind::Full, format!("it has no room for what was sent ({code})"))
            }
            404 | 410 => Self::new(ProblemKind::Missing, "it does not have it (404)"),
            _ => Self::new(ProblemKind::Strange, format!("it answered {status}")),
        }
    }

    pub(super) fn other_digest(found: Digest, wanted: Digest) -> Self {
        Self::new(
            ProblemKind::Damaged,
            format!("what it sent has the digest {} instead of {}", found.oci(), wanted.oci()),
        )
    }

    /// For a refusal whose body may explain it (distribution-spec 1.1, error codes).
    pub(super) fn told(status: StatusCode, body: &[u8], asked: RequestContext) -> Self {
        let Ok(RefusalBody { errors }) = serde_json::from_slice(body) else {
            return Self::of_status(status, asked);
        };
        let Some(RefusalReason { code, message }) =
            errors.first().filter(|_| status != StatusCode::UNAUTHORIZED)
        else {
            return Self::of_status(status, asked);
        };
        match code.as_str() {
            "UNAUTHORIZED" => Self::refused(401, asked),
            "DENIED" => Self::refused(403, asked),
            "NAME_UNKNOWN" => Self::new(ProblemKind::Missing, "it does not have this repository (404)"),
            "MANIFEST_UNKNOWN" | "NOT_FOUND" | "MANIFEST_BLOB_UNKNOWN" => {
                Self::new(ProblemKind::Missing, "it does not have this tag or digest (404)")
            }
            _ if message.is_empty() => Self::of_status(status, asked),
            _ => {
                let said = message.chars().filter(|c| !c.is_control()).take(200);
                Self::new(
                    ProblemKind::Strange,
                    format!("it refused ({status}): {}", said.collect::<String>()),
                )
            }
        }
    }

    fn of_unreachable(unreachable: &ConnectionError) -> Self {
        let kind = match unreachable.fault {
            ConnectionFault::Distrusted => ProblemKind::Distrusted,
            ConnectionFault::Expired => ProblemKind::Expired,
            ConnectionFault::Clear => return Self::new(ProblemKind::Clear, "it does not speak TLS"),
            ConnectionFault::Request | ConnectionFault::Tls | ConnectionFault::Proxy => ProblemKind::Strange,
        };
        Self::new(kind, unreachable.to_string())
    }

    pub(super) fn of_download(download: &Download, failure: &Failure, asked: RequestContext) -> Self {
        let cause = failure.source();
        if let Some(problem) = cause.and_then(|cause| cause.downcast_ref::<Self>()) {
            return problem.clone();
        }
        let why = cause.map_or_else(|| failure.to_string(), ToString::to_string);
        match download.status() {
            _ if failure.class() == Class::Verification => Self::new(ProblemKind::Damaged, why),
            _ if cause.is_some_and(|cause| cause.is::<RedirectError>()) => {
                Self::new(ProblemKind::Redirect, why)
            }
            Some(status) if !is_temporary(status) => Self::of_status(status, asked),
            _ => match cause.and_then(|cause| cause.downcast_ref::<ConnectionError>()) {
                Some(unreachable) => Self::of_unreachable(unreachable),
                None => Self::new(ProblemKind::Silent, why),
            },
        }
    }
}

/// The error document of a registry.
#[derive(Deserialize)]
struct RefusalBody {
    errors: Vec<RefusalReason>,
}

#[derive(Deserialize)]
struct RefusalReason {
    code: String,
    #[serde(default)]
    message: String,
}

impl RegistryRequestError {
    pub(super) fn of_no_answer(why: RequestError) -> Self {
        let (kind, why) = match why {
            RequestError::Request(error) => {
                return match ConnectionError::of(&error) {
                    Some(unreachable) => Self::Permanent(Problem::of_unreachable(&unreachable)),
                    None => Self::Temporary(TemporaryError::new(reason(&error))),
                };
            }
            RequestError::Redirect(error) => (ProblemKind::Redirect, error.to_string()),
            RequestError::Address => (ProblemKind::Strange, "its address is not a valid URL".into()),
        };
        Self::Permanent(Problem::new(kind, why))
    }

    /// For an answer with another status than the one that means success.
    pub(super) fn of_status(response: &Response, asked: RequestContext) -> Self {
        let status = response.status();
        match is_temporary(status) {
            true => Self::Temporary(
                TemporaryError::new(format!("it answered {status}")).asking(response.headers()),
            ),
            false => Self::Permanent(Problem::of_status(status, asked)),
        }
    }

    /// For an answer that cannot be read to its end; `what` names it.
    pub(super) fn of_body(what: &str, error: &BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => {
                Self::Permanent(Problem::new(ProblemKind::Strange, format!("{what} is refused: {limit}")))
            }
            BodyError::Late => {
                Self::Permanent(Problem::new(ProblemKind::Silent, format!("{what} is sent too slowly")))
            }
            BodyError::Read(error) => Self::Temporary(TemporaryError::new(reason(error))),
        }
    }
}

/// One failure for the problems of all endpoints. `docker` tells whether docker's logins are used.
pub(super) fn summary(what: String, problems: &[(Server, Problem)], docker: bool) -> Failure {
    let told: Vec<_> = problems.iter().map(|(server, problem)| format!("{server}: {problem}")).collect();
    let any = |kind| problems.iter().find(|(_, problem)| problem.kind == kind).map(|(server, _)| server);
    let class = if any(ProblemKind::Damaged).is_some() { Class::Verification } else { Class::Network };
    let mut hints = Vec::new();
    if let Some(Server { host, .. }) = any(ProblemKind::Refused) {
        let command = if docker { format!("Run \"docker login {host}\", or give") } else { "Give".into() };
        hints.push(format!("{command} user name and password under registries.configs.{host:?}.auth."));
    }
    if any(ProblemKind::Missing).is_some() {
        hints.push("Check the name and the tag of the image.".into());
    }
    if let Some(Server { host, .. }) = any(ProblemKind::Distrusted) {
        let key = format!("registries.configs.{host:?}.tls.ca_file");
        hints.push(format!("Name the file with the certificate of the registry's authority as {key}."));
    }
    if any(ProblemKind::Expired).is_some() {
        hints.push(EXPIRED.into());
    }
    if let Some(Server { host, .. }) = any(ProblemKind::Clear) {
        hints.push(format!(
            "If it is meant to have none, name it with http://: registries.mirrors.{host:?}.endpoint: [\"http://{host}\"], \
             or mirrors.{host:?} in the file that --registries names."
        ));
    }
    if any(ProblemKind::Silent).is_some() || any(ProblemKind::Strange).is_some() {
        hints.push(
            "Check the network, the proxy and the endpoints under registries, then start again.".into(),
        );
    }
    if any(ProblemKind::Redirect).is_some() {
        hints.push(
            "Name the server that it redirects to under registries, or have the redirect corrected.".into(),
        );
    }
    if any(ProblemKind::Full).is_some() {
        hints.push(
            "Give the registry more space, or allow larger requests at the registry and at a proxy before it.".into(),
        );
    }
    if any(ProblemKind::Damaged).is_some() {
        hints.push("Ask who runs the registry or the mirror, or name another one under registries.".into());
    }
    Failure::new(class, what).because(anyhow::anyhow!(told.join("; "))).hint(hints.join(" "))
}
