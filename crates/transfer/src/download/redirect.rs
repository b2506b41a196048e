//! Redirects, followed by hand.
//!
//! No client that [`super::client`] makes follows redirects itself: `reqwest` compares each address only with the one
//! before it and then sends the first request's header fields again, so a server that redirects to itself would get
//! the credentials of the one that redirected there. [`get`] is the one place that follows. Its rules:
//!
//! - Credentials go to the origin (scheme, host and port) that they were given for. Once a redirect has left that
//!   origin they are not sent any more, not even back there: the other server could choose the request that gets them.
//! - From https no redirect leads to http.
//! - There are at most [`MOST`] redirects, none to an address that was asked before, and none with a user name or a
//!   password in its address (RFC 9110, 4.2.4).
//!
//! Requests that carry something for one server only (webhooks, reports, a fleet) follow none.

use reqwest::StatusCode;
use reqwest::Url;
use reqwest::blocking::{Client, Response};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION};

/// The most redirects of one request.
const MOST: usize = 10;

/// Why a redirect is not followed. Only the origins of addresses are shown: the rest may contain a signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectError {
    /// From https to http.
    #[error(
        "{from} redirects to {to}, an address without TLS, where others could read and change the transfer"
    )]
    Downgrade { from: String, to: String },
    /// To an address that was requested already.
    #[error("{0} redirects in a circle")]
    Circle(String),
    /// One more than [`MOST`].
    #[error("{0} redirects after {MOST} others, and more than {MOST} redirects are not followed")]
    TooMany(String),
    /// With a user name or a password.
    #[error("{0} redirects to an address with a user name or a password in it")]
    Credentials(String),
    /// To something that is not an http or https URL.
    #[error("{0} redirects to something that is not an http or https URL")]
    Address(String),
}

impl RedirectError {
    /// The next step, a whole sentence.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Downgrade { .. } => {
                "Name an address that leads to https:// only, or have the server's redirect corrected."
            }
            _ => "Name the final address, or have the server's redirect corrected.",
        }
    }
}

#[derive(Debug)]
pub enum RequestError {
    /// The connection, TLS or the protocol failed. Names no address.
    Request(reqwest::Error),
    Redirect(RedirectError),
    /// The address is not an http or https URL.
    Address,
}

/// Requests `url` with these header fields and follows redirects. `authorization` is for the origin of `url` alone, and
/// so are the user name and the password that `url` may have, which it replaces.
///
/// The answer may have any status, but for that of a redirect only where there is no address to follow to.
pub fn get(
    client: &Client,
    url: &str,
    headers: &HeaderMap,
    authorization: Option<&HeaderValue>,
) -> Result<Response, RequestError> {
    let first = Url::parse(url).ok().filter(is_http).ok_or(RequestError::Address)?;
    let mut asked = vec![bare(&first)];
    let mut at = first.clone();
    let mut authorization = authorization;
    loop {
        let mut request = client.get(at.clone()).headers(headers.clone()).build().map_err(unnamed)?;
        if let Some(value) = authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        let response = client.execute(request).map_err(unnamed)?;
        let Some(next) = target(&at, &response).map_err(RequestError::Redirect)? else { return Ok(response) };
        let from = || origin(&at);
        if asked.contains(&next) {
            return Err(RequestError::Redirect(RedirectError::Circle(from())));
        }
        if asked.len() > MOST {
            return Err(RequestError::Redirect(RedirectError::TooMany(from())));
        }
        asked.push(next.clone());
        at = next;
        if asked.iter().all(|address| address.origin() == first.origin()) {
            // User name and password from a URL are valid in another one.
            let _ = at.set_username(first.username());
            let _ = at.set_password(first.password());
        } else {
            authorization = None;
        }
    }
}

/// True if an answer comes from the origin of `url` and not from elsewhere by a redirect.
pub fn is_from(response: &Response, url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.origin() == response.url().origin())
}

/// The target of a redirect; none for other responses.
fn target(at: &Url, response: &Response) -> Result<Option<Url>, RedirectError> {
    let redirects = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    let Some(location) = response.headers().get(LOCATION).filter(|_| redirects) else { return Ok(None) };
    let from = origin(at);
    let location = std::str::from_utf8(location.as_bytes()).ok();
    let next = location.and_then(|location| bare(at).join(location).ok());
    let next = next.filter(is_http);
    let Some(mut next) = next else { return Err(RedirectError::Address(from)) };
    if !next.username().is_empty() || next.password().is_some() {
        return Err(RedirectError::Credentials(from));
    }
    if at.scheme() == "https" && next.scheme() != "https" {
        return Err(RedirectError::Downgrade { from, to: origin(&next) });
    }
    next.set_fragment(None);
    Ok(Some(next))
}

fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Without user name, password and fragment.
fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    // A URL without a host has none of them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    url
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn unnamed(error: reqwest::Error) -> RequestError {
    RequestError::Request(error.without_url())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::http::{Answer, Fake};

    /// The answer of a server that redirects `/start/a` to `location` and elsewhere returns its path.
    fn ask(location: &'static str) -> Result<String, RedirectError> {
        let fake = Fake::start(move |request| match request.path.as_str() {
            "/start/a" => Answer::new(302, b"").with(&format!("Location: {location}")),
            path => Answer::ok(path.as_bytes()),
        });
        let url = format!("{}/start/a#part", fake.url());
        let client = crate::download::client(&url, &[], Client::builder).unwrap();
        match get(&client, &url, &HeaderMap::new(), None) {
            Ok(response) => Ok(response.text().unwrap()),
            Err(RequestError::Redirect(error)) => Err(error),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_redirect_may_be_relative_to_the_address_that_makes_it() {
        for (location, path) in
            [("b", "/start/b"), ("/c?x=1", "/c?x=1"), ("?y", "/start/a?y"), ("../d#there", "/d")]
        {
            assert_eq!(ask(location).unwrap(), path, "{location}");
        }
    }

    #[test]
    fn a_redirect_to_what_is_no_place_to_ask_is_refused() {
        for location in ["ftp://127.0.0.1/x", "file:///etc/passwd", "http://", "http://127.0.0.1:x/"] {
            assert!(matches!(ask(location), Err(RedirectError::Address(_))), "{location}");
        }
        for location in ["http://user:hush@127.0.0.1/", "http://user@127.0.0.1/", "//:hush@127.0.0.1/"] {
            let error = ask(location).unwrap_err();
            assert!(matches!(error, RedirectError::Credentials(_)), "{location}: {error}");
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }
}
