//! Why an endpoint did not give what was wanted, and what all of them together mean for a user.

use std::error::Error;

use oci_client::errors::{OciDistributionError, OciEnvelope, OciErrorCode};
use reqwest::StatusCode;

use super::endpoint::Server;
use crate::download::{Distrusted, Download, Passing, is_distrusted, is_passing, reason};
use crate::failure::{Class, Failure};

/// What kind of trouble, as far as it decides what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is not there.
    Missing,
    /// A login is wanted, or the one that was given is not good for it.
    Refused,
    /// No answer, or none that helps, however often it was tried.
    Silent,
    /// The certificate is not trusted.
    Distrusted,
    /// Something else than was asked for.
    Damaged,
    /// An answer that nothing can be done with.
    Strange,
}

/// Why one endpoint did not give what was wanted.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct Problem {
    pub(super) kind: Kind,
    pub(super) why: String,
}

/// Whether trying again can help.
pub(super) enum Trouble {
    Passing(Passing),
    Lasting(Problem),
}

impl Problem {
    pub(super) fn new(kind: Kind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    /// A refusal; `login` tells whether a user name and a password were given.
    pub(super) fn refused(status: u16, login: bool) -> Self {
        let why = match (status, login) {
            (401, true) => "it does not accept the user name and the password (401)".into(),
            (401, false) => "it wants a login, or there is no such repository (401)".into(),
            (_, true) => format!("the user may not read this repository ({status})"),
            (_, false) => format!("this repository may not be read without a login ({status})"),
        };
        Self::new(Kind::Refused, why)
    }

    /// What a status means.
    pub(super) fn of_status(status: StatusCode, login: bool) -> Self {
        match status.as_u16() {
            code @ (401 | 403 | 407) => Self::refused(code, login),
            404 | 410 => Self::new(Kind::Missing, "it does not have it (404)"),
            _ => Self::new(Kind::Strange, format!("it answered {status}")),
        }
    }

    /// Why a download ended.
    pub(super) fn of_download(download: &Download, failure: &Failure, login: bool) -> Self {
        let cause = failure.source();
        if let Some(problem) = cause.and_then(|cause| cause.downcast_ref::<Self>()) {
            return problem.clone();
        }
        let why = cause.map_or_else(|| failure.to_string(), ToString::to_string);
        match download.status() {
            _ if failure.class() == Class::Verification => Self::new(Kind::Damaged, why),
            Some(status) if !is_passing(status) => Self::of_status(status, login),
            _ if cause.is_some_and(|cause| cause.is::<Distrusted>()) => Self::new(Kind::Distrusted, why),
            _ => Self::new(Kind::Silent, why),
        }
    }
}

impl Trouble {
    /// What to make of a request without an answer.
    pub(super) fn of_request(error: &(dyn Error + 'static)) -> Self {
        match is_distrusted(error) {
            true => Self::Lasting(Problem::new(Kind::Distrusted, reason(error))),
            false => Self::Passing(Passing::new(reason(error))),
        }
    }

    /// What to make of an answer whose status is not the one that was hoped for.
    pub(super) fn of_status(status: StatusCode, login: bool) -> Self {
        match is_passing(status) {
            true => Self::Passing(Passing::new(format!("it answered {status}"))),
            false => Self::Lasting(Problem::of_status(status, login)),
        }
    }

    /// What to make of an error of the registry client.
    pub(super) fn of_client(error: OciDistributionError, login: bool) -> Self {
        match error {
            OciDistributionError::UnauthorizedError { .. } => Self::Lasting(Problem::refused(401, login)),
            OciDistributionError::RegistryError { envelope, .. } => Self::of_envelope(&envelope, login),
            OciDistributionError::ServerError { code, .. } => {
                Self::of_status(StatusCode::from_u16(code).unwrap_or_default(), login)
            }
            OciDistributionError::RequestError(error) => Self::of_request(&error.without_url()),
            OciDistributionError::DigestError(error) => {
                Self::Lasting(Problem::new(Kind::Damaged, damage(&error)))
            }
            // The text of other errors may quote what a server said, and that may be a token.
            OciDistributionError::RegistryTokenDecodeError(_) => {
                Self::Lasting(Problem::new(Kind::Strange, "its token service answered without a token"))
            }
            OciDistributionError::SpecViolationError(why) => Self::Lasting(Problem::new(Kind::Strange, why)),
            _ => Self::Lasting(Problem::new(Kind::Strange, "its answer is not that of a registry")),
        }
    }

    fn of_envelope(envelope: &OciEnvelope, login: bool) -> Self {
        let Some(first) = envelope.errors.first() else {
            return Self::Lasting(Problem::new(Kind::Strange, "it refused without a reason"));
        };
        Self::Lasting(match first.code {
            OciErrorCode::Toomanyrequests => {
                return Self::Passing(Passing::new("it has too many requests (429)"));
            }
            OciErrorCode::Unauthorized => Problem::refused(401, login),
            OciErrorCode::Denied => Problem::refused(403, login),
            OciErrorCode::NameUnknown => {
                Problem::new(Kind::Missing, "it does not have this repository (404)")
            }
            OciErrorCode::ManifestUnknown | OciErrorCode::NotFound | OciErrorCode::ManifestBlobUnknown => {
                Problem::new(Kind::Missing, "it does not have this tag or digest (404)")
            }
            _ => {
                let said = first.message.chars().filter(|c| !c.is_control()).take(200);
                Problem::new(Kind::Strange, format!("it refused: {}", said.collect::<String>()))
            }
        })
    }
}

fn damage(error: &oci_client::errors::DigestError) -> String {
    use oci_client::errors::DigestError;
    match error {
        DigestError::VerificationError { expected, actual } => {
            let full = |text: &str| match text.contains(':') {
                true => text.to_owned(),
                false => format!("sha256:{text}"),
            };
            format!("what it sent has the digest {} instead of {}", full(actual), full(expected))
        }
        other => format!("the digest that it named is not understood: {other}"),
    }
}

/// One failure for the problems of all endpoints. `docker` tells whether docker's logins are used.
pub(super) fn summary(what: String, problems: &[(Server, Problem)], docker: bool) -> Failure {
    let told: Vec<_> = problems.iter().map(|(server, problem)| format!("{server}: {problem}")).collect();
    let any = |kind| problems.iter().find(|(_, problem)| problem.kind == kind).map(|(server, _)| server);
    let class = if any(Kind::Damaged).is_some() { Class::Verification } else { Class::Network };
    let mut hints = Vec::new();
    if let Some(Server { host, .. }) = any(Kind::Refused) {
        let command = if docker { format!("Run \"docker login {host}\", or give") } else { "Give".into() };
        hints.push(format!("{command} user name and password under registries.configs.{host:?}.auth."));
    }
    if any(Kind::Missing).is_some() {
        hints.push("Check the name and the tag of the image.".into());
    }
    if let Some(Server { host, .. }) = any(Kind::Distrusted) {
        let key = format!("registries.configs.{host:?}.tls.ca_file");
        hints.push(format!("Name the file with the certificate of the registry's authority as {key}."));
    }
    if any(Kind::Silent).is_some() || any(Kind::Strange).is_some() {
        hints.push(
            "Check the network, the proxy and the endpoints under registries, then start again.".into(),
        );
    }
    if any(Kind::Damaged).is_some() {
        hints.push("Ask who runs the registry or the mirror, or name another one under registries.".into());
    }
    Failure::new(class, what).because(anyhow::anyhow!(told.join("; "))).hint(hints.join(" "))
}
