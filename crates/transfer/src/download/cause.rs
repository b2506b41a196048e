//! Why something was not fetched, in types that survive in a chain of errors.

use std::io;

use reqwest::StatusCode;

/// The cause of a failure where a server answers and does not have what it is asked for.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it does not exist (404)")]
pub struct Absent;

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

/// Whether another attempt may get another status.
pub fn is_passing(status: StatusCode) -> bool {
    matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) || status.is_server_error()
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Distrusted(pub(super) String);

/// Whether a server's certificate is one that another attempt does not mend. Dates may still become right: a
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

/// Whether a server that was asked over TLS answered in clear text.
pub fn speaks_no_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source()).filter_map(carried);
    let clear = rustls::InvalidMessage::InvalidContentType;
    causes.any(|error| matches!(error, rustls::Error::InvalidMessage(why) if *why == clear))
}

/// The TLS error that an error is or carries: an I/O error made from another one leaves it out of the chain of causes,
/// and there may be several of them, one in the other.
pub fn carried<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = || carried(error.downcast_ref::<io::Error>()?.get_ref()?);
    error.downcast_ref().or_else(inner)
}
