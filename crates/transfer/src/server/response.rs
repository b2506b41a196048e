//! Responses that servers of files have in common.

use hyper::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, HeaderValue,
};
use hyper::{Response, StatusCode};

use super::body::ResponseBody;
use super::served_file::ServedFile;
use crate::range::{ByteSpan, RangeSelection};

/// How long the content of a path stays the same, for caches between a server and its clients (RFC 9111).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// The path names the content by its digest, so a cache need not ask again (RFC 8246).
    Immutable,
    /// Another release has other content at this path. A cache has to ask with the entity tag before it uses what it has.
    Revalidate,
    /// A cache must not store it: it is a secret, an error, or of one moment.
    Never,
}

impl CachePolicy {
    /// The value of the field `Cache-Control`. A year is what caches take for ever.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::Immutable => "public, max-age=31536000, immutable",
            Self::Revalidate => "no-cache",
            Self::Never => "no-store",
        }
    }
}

/// The selected part of a file. `policy` is for the content; that a range does not exist is never stored.
#[must_use]
pub fn file_response(
    served: ServedFile,
    selection: RangeSelection,
    policy: CachePolicy,
) -> Response<ResponseBody> {
    let (tag, length) = (served.tag(), served.length);
    let (status, content) = match selection {
        RangeSelection::Whole => {
            (StatusCode::OK, ResponseBody::part(served, ByteSpan { start: 0, end: length }))
        }
        RangeSelection::Part(span) => (StatusCode::PARTIAL_CONTENT, ResponseBody::part(served, span)),
        RangeSelection::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, ResponseBody::whole("")),
        RangeSelection::NotModified => (StatusCode::NOT_MODIFIED, ResponseBody::whole("")),
    };
    let policy = if status == StatusCode::RANGE_NOT_SATISFIABLE { CachePolicy::Never } else { policy };
    let mut response = with_length(status, content);
    set_field(&mut response, CACHE_CONTROL, policy.field());
    set_field(&mut response, ETAG, &tag);
    set_field(&mut response, ACCEPT_RANGES, "bytes");
    set_field(&mut response, CONTENT_TYPE, "application/octet-stream");
    if let Some(range) = selection.content_range(length) {
        set_field(&mut response, CONTENT_RANGE, &range);
    }
    response
}

/// A response that names the length of its body.
#[must_use]
pub fn with_length(status: StatusCode, content: ResponseBody) -> Response<ResponseBody> {
    let length = hyper::body::Body::size_hint(&content).exact();
    let mut response = Response::new(content);
    *response.status_mut() = status;
    if let Some(length) = length.filter(|_| status != StatusCode::NOT_MODIFIED) {
        set_field(&mut response, CONTENT_LENGTH, &length.to_string());
    }
    response
}

/// Sets a header field whose value comes from this server.
pub fn set_field(response: &mut Response<ResponseBody>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
