//! Requests and responses of HTTP: what [`super::site`] knows, in hyper's words.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::{Body, Bytes};
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HOST, HeaderName,
    HeaderValue, IF_NONE_MATCH, IF_RANGE, ORIGIN, RANGE, REFERER,
};
use hyper::{Method, Request, Response, StatusCode};

use super::body::Content;
use super::files::Served;
use super::fleet::{self, routes::Fleet};
use super::hosts::Provenance;
use super::machines::Moment;
use super::range::{Fields, Selection, Span};
use super::site::{Asked, Reply, Site, trouble};

/// Where a request comes from, as browsers say it (W3C Fetch Metadata Request Headers).
const FETCH_SITE: &str = "sec-fetch-site";

/// Answers one request of the client at `peer`. Bodies of requests are of no interest but to the fleet.
pub async fn respond<B>(
    site: Arc<Site>,
    peer: IpAddr,
    request: Request<B>,
) -> Result<Response<Content>, Infallible>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if Fleet::has(request.uri().path()) {
        return Ok(fleet::http::respond(site, peer, request).await);
    }
    let head = match *request.method() {
        Method::GET => false,
        Method::HEAD => true,
        _ => return Ok(not_allowed("GET, HEAD")),
    };
    let (parts, _) = request.into_parts();
    let path = parts.uri.path().to_owned();
    // The state is on a disk, which may be slow.
    let answered = tokio::task::spawn_blocking(move || {
        let field = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let asked = Asked {
            peer,
            head,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            host: field(HOST),
            provenance: Provenance {
                fetch_site: parts.headers.get(FETCH_SITE).map(|value| value.to_str().unwrap_or_default()),
                origin: parts.headers.contains_key(ORIGIN),
                referer: parts.headers.contains_key(REFERER),
            },
            fields: Fields {
                range: field(RANGE),
                if_range: field(IF_RANGE),
                if_none_match: field(IF_NONE_MATCH),
            },
        };
        site.answer(&asked, Moment::now())
    });
    let reply = answered.await.unwrap_or_else(|_| trouble(&path));
    let mut response = rendered(reply);
    if head {
        // Its length is what a GET would have (RFC 9110, section 9.3.2).
        *response.body_mut() = Content::whole("");
    }
    Ok(response)
}

fn rendered(reply: Reply) -> Response<Content> {
    match reply {
        Reply::File(served, selection) => file(served, selection),
        Reply::Script(text) => momentary(text, "text/plain; charset=utf-8"),
        Reply::Configuration(text) => momentary(text.expose().to_owned(), "application/yaml"),
        Reply::NotFound => plain(StatusCode::NOT_FOUND, "there is nothing of this name here"),
        Reply::Gone => plain(
            StatusCode::GONE,
            "this configuration was handed out already, or its time is over; boot the machine again",
        ),
        Reply::Bad(why) => plain(StatusCode::BAD_REQUEST, why),
        Reply::Refused(why) => plain(StatusCode::FORBIDDEN, why),
        Reply::OnlyGet => not_allowed("GET"),
        Reply::Trouble => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, "the server has trouble; it tells its operator which")
        }
    }
}

fn file(served: Served, selection: Selection) -> Response<Content> {
    let (tag, length) = (served.tag(), served.length);
    let (status, content, range) = match selection {
        Selection::Whole => (StatusCode::OK, Content::part(served, Span { start: 0, end: length }), None),
        Selection::Part(span) => {
            let range = format!("bytes {}-{}/{length}", span.start, span.end - 1);
            (StatusCode::PARTIAL_CONTENT, Content::part(served, span), Some(range))
        }
        Selection::Unsatisfiable => {
            (StatusCode::RANGE_NOT_SATISFIABLE, Content::whole(""), Some(format!("bytes */{length}")))
        }
        Selection::NotModified => (StatusCode::NOT_MODIFIED, Content::whole(""), None),
    };
    let mut response = with_length(status, content);
    set(&mut response, ETAG, &tag);
    set(&mut response, ACCEPT_RANGES, "bytes");
    set(&mut response, CONTENT_TYPE, "application/octet-stream");
    if let Some(range) = range {
        set(&mut response, CONTENT_RANGE, &range);
    }
    response
}

/// What must not be kept by anybody on the way.
fn momentary(text: String, kind: &str) -> Response<Content> {
    let mut response = with_length(StatusCode::OK, Content::whole(text));
    set(&mut response, CONTENT_TYPE, kind);
    set(&mut response, CACHE_CONTROL, "no-store");
    response
}

fn not_allowed(allowed: &str) -> Response<Content> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "this cannot be done here");
    set(&mut response, ALLOW, allowed);
    response
}

/// A sentence.
pub fn plain(status: StatusCode, text: &str) -> Response<Content> {
    let mut response = with_length(status, Content::whole(format!("{text}\n")));
    set(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
    response
}

fn with_length(status: StatusCode, content: Content) -> Response<Content> {
    let length = hyper::body::Body::size_hint(&content).exact();
    let mut response = Response::new(content);
    *response.status_mut() = status;
    if let Some(length) = length.filter(|_| status != StatusCode::NOT_MODIFIED) {
        set(&mut response, CONTENT_LENGTH, &length.to_string());
    }
    response
}

/// Sets a field whose value is of our own making.
fn set(response: &mut Response<Content>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
