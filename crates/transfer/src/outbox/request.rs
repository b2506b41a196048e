//! Requests to a server that a user named. Redirects are not followed: the message is for that server only. Errors do not
//! show the URL, whose path is often a secret.

use reqwest::Url;
use reqwest::blocking::{Client, ClientBuilder, RequestBuilder, Response};

use super::destination::SendError;
use crate::download::{self, ConnectionError, ConnectionFault};
use base::failure::causes;

/// A client of [`download::client`]; the error is the bare cause.
pub fn client(
    url: &str,
    authorities: &[String],
    builder: impl Fn() -> ClientBuilder,
) -> Result<Client, String> {
    download::client(url, authorities, builder).map_err(|error| causes(&error).pop().unwrap_or_default())
}

/// Sends a request; what the status of the answer means is for the caller to judge. The body is not read yet.
pub fn send(request: RequestBuilder) -> Result<Response, SendError> {
    match request.send() {
        Ok(answer) => Ok(answer),
        Err(error) => Err(match ConnectionError::of(&error) {
            Some(why) if why.fault == ConnectionFault::Distrusted => SendError::Distrusted(why.to_string()),
            Some(why) => SendError::Refused(why.to_string()),
            None if error.is_timeout() => SendError::Temporary("the server did not answer in time".into()),
            None => SendError::Temporary(download::reason(&error)),
        }),
    }
}

/// The error of an answer after which another attempt may succeed.
#[must_use]
pub fn busy(answer: &Response) -> SendError {
    let why = format!("the server answered {}", answer.status());
    match download::asked_wait(answer.headers()) {
        Some(wait) => SendError::Busy(why, wait),
        None => SendError::Temporary(why),
    }
}

/// Scheme, host and port of a URL: what may be shown of it.
#[must_use]
pub fn origin(url: &str) -> String {
    Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}
