//! Transfers over HTTP, for everything that the programs fetch.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`document`] | small things, read whole with a limit and from one answer |
//! | [`resume`] | files of any size, read over broken connections to their end |
//! | [`redirect`] | where a redirect may lead, and who hears credentials |
//! | [`patience`] | how long to wait, and how often to try |
//! | [`proxies`] | proxies that a configuration names |
//!
//! Digests are checked by who reads.

use std::io;

use anyhow::Result;
use reqwest::Certificate;
use reqwest::StatusCode;
use reqwest::blocking::{Client, ClientBuilder};
use reqwest::header::HeaderValue;
use reqwest::redirect::Policy;

use base::failure::{Class, Classify, Failure};

mod document;
mod patience;
pub mod proxies;
pub mod redirect;
mod resume;
mod trouble;

pub use document::TooLarge;
pub use document::{BodyError, body};
pub use patience::Patience;
pub use patience::{Attempts, Passing};
pub use resume::Download;

/// What a server that wants to know who asks is told.
///
/// The header goes with requests to the origin that was named; no server that it redirects to gets it ([`redirect`]).
pub trait Authoriser: Send + Sync {
    /// The header for a request, if there is to be one.
    fn authorization(&self) -> Result<Option<HeaderValue>, Failure>;

    /// The header after the server refused this one (401), which may have expired.
    fn renew(&self, refused: Option<&HeaderValue>) -> Result<Option<HeaderValue>, Failure>;
}

/// A client for URLs that begin like `url`, for servers that the authorities of these certificates (PEM) vouch
/// for too. Proxies are those of the configuration ([`proxies`]) or else of the environment. The client follows no
/// redirect; [`redirect::get`] does.
pub fn client(url: &str, authorities: &[String], builder: impl Fn() -> ClientBuilder) -> Result<Client> {
    let extra = authorities.iter().map(|pem| Certificate::from_pem_bundle(pem.as_bytes()));
    let extra = extra
        .collect::<Result<Vec<_>, _>>()
        .class(Class::Invalid, || "reading install.ca_certificates".into())?;
    let extra = extra.concat();
    // The provider is the process's; that it is set already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || proxies::apply(builder().redirect(Policy::none()));
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
    pub fn over(client: Client, patience: Patience, hint: &'static str) -> Self {
        Self { client, patience, hint }
    }

    /// The client, for requests that are no downloads.
    pub fn client(&self) -> &Client {
        &self.client
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

/// The cause of a failure where a server answers and does not have what it is asked for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it does not exist (404)")]
pub struct Absent;

/// Whether a server said that it does not have the thing.
#[must_use]
pub fn is_absent(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Absent>())
}

/// An error with its causes, each once, without the URL that the message around it names already.
pub fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let last = causes.last().map(ToString::to_string);
    last.unwrap_or_default()
}

/// Whether an answer with this status may be another one later.
pub fn is_passing(status: StatusCode) -> bool {
    matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) || status.is_server_error()
}

/// The certificate of a server is not trusted.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Distrusted(String);

/// Whether a server's certificate is one that trying again does not make better. Dates may still become right: a
/// machine's clock is set late.
pub fn is_distrusted(error: &(dyn std::error::Error + 'static)) -> bool {
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
pub fn carried<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = || carried(error.downcast_ref::<io::Error>()?.get_ref()?);
    error.downcast_ref().or_else(inner)
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
