//! Causes of failed transfers, as types that can be found in a chain of errors.

use std::io;

use base::failure::Class;
use reqwest::StatusCode;

/// The server does not have the file.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it does not exist (404)")]
pub struct NotFoundError;

#[must_use]
pub fn is_absent(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<NotFoundError>())
}

/// An error with its causes, each once, without the URL, which the message around it names already.
pub fn reason(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let last = causes.last().map(ToString::to_string);
    last.unwrap_or_default()
}

/// True if a retry may get another status. Some server errors (5xx) are permanent, such as 501.
pub fn is_temporary(status: StatusCode) -> bool {
    const PERMANENT: [StatusCode; 5] = [
        StatusCode::NOT_IMPLEMENTED,
        StatusCode::HTTP_VERSION_NOT_SUPPORTED,
        StatusCode::LOOP_DETECTED,
        StatusCode::NOT_EXTENDED,
        StatusCode::NETWORK_AUTHENTICATION_REQUIRED,
    ];
    let temporary = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    temporary || (status.is_server_error() && !PERMANENT.contains(&status))
}

/// Why a request never gets an answer, however often it is retried. Everything else may be temporary: a refused or broken
/// connection, and also an unknown name, which a resolver reports before the network is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionFault {
    /// The request cannot be sent at all.
    Request,
    /// The server's certificate is not signed by a trusted CA, or is for another name.
    Distrusted,
    /// The server's certificate has expired.
    Expired,
    /// The server answers a TLS handshake in clear text.
    Clear,
    /// The two sides of TLS have no version or cipher in common, or the server wants a certificate from us.
    Tls,
    Proxy,
}

/// A [`ConnectionFault`] with its details.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct ConnectionError {
    pub fault: ConnectionFault,
    why: String,
}

impl ConnectionError {
    /// None where another attempt may get an answer.
    pub fn of(error: &reqwest::Error) -> Option<Self> {
        let why = reason(error);
        let causes =
            std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
        let fault = match causes.filter_map(carried).find_map(fault_of_tls) {
            Some(fault) => fault,
            None if error.is_builder() => ConnectionFault::Request,
            None if why.ends_with(PROXY_LOGIN) => ConnectionFault::Proxy,
            None => return None,
        };
        let why = match fault {
            ConnectionFault::Clear => "the server does not speak TLS".to_owned(),
            ConnectionFault::Proxy => "the proxy requires a login (407)".to_owned(),
            _ => why,
        };
        Some(Self { fault, why })
    }
}

impl ConnectionFault {
    pub(super) fn class(self) -> Class {
        match self {
            Self::Request => Class::Invalid,
            _ => Class::Network,
        }
    }

    /// The next step, a whole sentence; none if it depends on the caller.
    pub(super) fn hint(self) -> Option<&'static str> {
        match self {
            Self::Expired => Some(EXPIRED),
            Self::Clear => Some("Name the server with http:// if it is meant to have no TLS."),
            Self::Proxy => {
                Some("Put name and password into the proxy's URL: http://NAME:PASSWORD@HOST:PORT.")
            }
            Self::Request | Self::Distrusted | Self::Tls => None,
        }
    }
}

/// The hint for an expired certificate.
pub const EXPIRED: &str =
    "Compare the clock of this machine with the dates of the certificate, and have it renewed.";

/// The message of `hyper-util` for a proxy that answers 407 to CONNECT.
const PROXY_LOGIN: &str = "proxy authorization required";

/// A certificate that is not valid yet may become valid: the clock of a new machine may be slow.
fn fault_of_tls(error: &rustls::Error) -> Option<ConnectionFault> {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error, InvalidMessage};
    match error {
        Error::InvalidCertificate(Certificate::NotValidYet | Certificate::NotValidYetContext { .. }) => None,
        Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => {
            Some(ConnectionFault::Expired)
        }
        Error::InvalidCertificate(_) => Some(ConnectionFault::Distrusted),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(ConnectionFault::Clear),
        Error::PeerIncompatible(_)
        | Error::AlertReceived(
            Alert::ProtocolVersion
            | Alert::HandshakeFailure
            | Alert::InsufficientSecurity
            | Alert::UnrecognisedName
            | Alert::CertificateRequired
            | Alert::AccessDenied,
        ) => Some(ConnectionFault::Tls),
        _ => None,
    }
}

/// The TLS error that an error is or carries: an I/O error made from another one leaves it out of the chain of causes,
/// and there may be several of them, one in the other.
pub fn carried<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = || carried(error.downcast_ref::<io::Error>()?.get_ref()?);
    error.downcast_ref().or_else(inner)
}
