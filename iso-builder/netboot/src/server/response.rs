//! HTTP responses that several modules make.

use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use hyper::{Response, StatusCode};
use transfer::server::body::ResponseBody;
use transfer::server::response::{CachePolicy, set_field, with_length};

use super::router::RETRY;

/// The media type of texts for people and of boot scripts.
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// A response that must not be cached.
pub(crate) fn momentary(text: String, kind: &str) -> Response<ResponseBody> {
    let mut response = with_length(StatusCode::OK, ResponseBody::whole(text));
    set_field(&mut response, CONTENT_TYPE, kind);
    set_field(&mut response, CACHE_CONTROL, CachePolicy::Never.field());
    response
}

/// A response with one line of text. Without a word about it a cache may store some of them, such as that a configuration is
/// gone (RFC 9110, section 15.1).
pub(crate) fn plain(status: StatusCode, text: &str) -> Response<ResponseBody> {
    let mut response = with_length(status, ResponseBody::whole(format!("{text}\n")));
    set_field(&mut response, CONTENT_TYPE, TEXT);
    set_field(&mut response, CACHE_CONTROL, CachePolicy::Never.field());
    response
}

/// A response after which the client is to send the same request again.
pub(crate) fn later(seconds: u64, text: &str) -> Response<ResponseBody> {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, text);
    set_field(&mut response, RETRY_AFTER, &seconds.to_string());
    response
}

/// The response while the state of the machines cannot be read or changed.
pub(crate) fn unavailable() -> Response<ResponseBody> {
    later(RETRY, "the database of the fleet does not answer; ask again")
}
