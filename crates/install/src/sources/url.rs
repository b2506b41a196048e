//! A configuration behind `install.config_url`.

use std::error::Error as _;
use std::time::Duration;

use anyhow::Result;

use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::url::shown;
use model::config::sources::{Document, SourceKind, SourceRequest, state::refusal};
use transfer::download::{Downloader, RetryPolicy, TooLargeError};

/// The longest document in bytes, as for a file.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;

/// How long to try, all attempts together: a machine that starts with all others of its rack waits for the switch and for the
/// server.
const TIME_LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests;

const HINT: &str = "Check install.config_url, in the kernel parameters or in the source that names it.";

/// Attempts end sooner than with payloads, but there are more.
#[must_use]
pub fn retry() -> RetryPolicy {
    RetryPolicy {
        connect: Duration::from_secs(15),
        read: Duration::from_secs(15),
        attempts: 31,
        limit: Some(TIME_LIMIT),
        ..RetryPolicy::default()
    }
}

/// Downloads the document; an error names the source of the URL.
pub fn fetch(request: &SourceRequest, retry: RetryPolicy) -> Result<Document> {
    let url = shown(&request.url);
    let what = || format!("fetching the configuration {url}, which the {} names", request.named_by);
    let expected = request.sha256.as_deref().map(str::parse::<Digest>).transpose();
    let expected = expected.class(Class::Invalid, || "reading install.config_sha256".into())?;
    let downloader =
        Downloader::trusting(&request.url, retry, HINT, &request.authorities).class(Class::Network, what)?;
    let invalid =
        |why: String| Failure::new(Class::Invalid, what()).because(anyhow::anyhow!("{why}")).hint(HINT);
    let bytes = match downloader.document(&request.url, DOCUMENT_BYTES_MAX) {
        Err(failure) if failure.source().is_some_and(|cause| cause.is::<TooLargeError>()) => {
            return Err(invalid("it is longer than 1 MiB".into()).into());
        }
        fetched => fetched.class(Class::Network, what)?,
    };
    let found = Digest::of(&bytes);
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        let why = format!("its SHA-256 is {found}, and install.config_sha256 is {expected}");
        return Err(Failure::new(Class::Verification, what())
            .because(anyhow::anyhow!("{why}"))
            .hint("Serve the document that was meant, or correct install.config_sha256.")
            .into());
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("it is not text in UTF-8".into()))?;
    let document = Document::yaml(SourceKind::Url, url, text);
    // As with a file: a server that answers with nothing is no configuration that leaves everything open.
    document.is_configuration().map_err(refusal)?;
    Ok(document)
}
