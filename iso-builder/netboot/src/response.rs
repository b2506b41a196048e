//! HTTP responses that several modules make.

use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::body::ResponseBody;

/// A response that must not be cached.
pub(crate) fn momentary(text: String, kind: &str) -> Response<ResponseBody> {
    let mut response = with_length(StatusCode::OK, ResponseBody::whole(text));
    set(&mut response, CONTENT_TYPE, kind);
    set(&mut response, CACHE_CONTROL, "no-store");
    response
}

/// A response with one line of text.
pub(crate) fn plain(status: StatusCode, text: &str) -> Response<ResponseBody> {
    let mut response = with_length(status, ResponseBody::whole(format!("{text}\n")));
    set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
    response
}

pub(crate) fn with_length(status: StatusCode, content: ResponseBody) -> Response<ResponseBody> {
    let length = hyper::body::Body::size_hint(&content).exact();
    let mut response = Response::new(content);
    *response.status_mut() = status;
    if let Some(length) = length.filter(|_| status != StatusCode::NOT_MODIFIED) {
        set(&mut response, CONTENT_LENGTH, &length.to_string());
    }
    response
}

/// Sets a header field whose value comes from this server.
pub(crate) fn set(response: &mut Response<ResponseBody>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
