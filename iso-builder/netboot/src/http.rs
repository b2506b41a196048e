//! Requests and responses of [`super::router`] in hyper's types.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::{Body, Bytes};
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_RANGE, CONTENT_TYPE, ETAG, HOST, HeaderName, IF_NONE_MATCH, IF_RANGE,
    LOCATION, ORIGIN, RANGE, REFERER, RETRY_AFTER,
};
use hyper::{Method, Request, Response, StatusCode};

use super::body::ResponseBody;
use super::files::ServedFile;
use super::fleet::routes::{Fleet, PAGE};
use super::fleet_http;
use super::hosts::RequestProvenance;
use super::moment::Moment;
use super::response::{momentary, plain, set, with_length};
use super::router::{Router, ServedReply, ServedRequest, trouble};
use transfer::range::{ByteSpan, RangeFields, RangeSelection};

/// What kind of site caused a request, according to the browser (W3C Fetch Metadata Request Headers).
const FETCH_SITE: &str = "sec-fetch-site";

/// Answers a request of the client at `peer`. Only the fleet reads bodies.
pub async fn respond<B>(
    router: Arc<Router>,
    peer: IpAddr,
    request: Request<B>,
) -> Result<Response<ResponseBody>, Infallible>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if Fleet::has(request.uri().path()) {
        return Ok(fleet_http::respond(router, peer, request).await);
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
        let asked = ServedRequest {
            peer,
            head,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            host: field(HOST),
            provenance: RequestProvenance {
                fetch_site: parts.headers.get(FETCH_SITE).map(|value| value.to_str().unwrap_or_default()),
                origin: parts.headers.contains_key(ORIGIN),
                referer: parts.headers.contains_key(REFERER),
            },
            fields: RangeFields {
                range: field(RANGE),
                if_range: field(IF_RANGE),
                if_none_match: field(IF_NONE_MATCH),
            },
        };
        router.answer(&asked, Moment::now())
    });
    let reply = answered.await.unwrap_or_else(|_| trouble(&path));
    let mut response = rendered(reply);
    if head {
        // The length is that of a GET (RFC 9110, section 9.3.2).
        *response.body_mut() = ResponseBody::whole("");
    }
    Ok(response)
}

fn rendered(reply: ServedReply) -> Response<ResponseBody> {
    match reply {
        ServedReply::File(served, selection) => file(served, selection),
        ServedReply::Script(text) => momentary(text, "text/plain; charset=utf-8"),
        ServedReply::Configuration(text) => momentary(text.expose().to_owned(), "application/yaml"),
        ServedReply::FleetPage => {
            let text = format!(
                "the fleet page is {PAGE}, with the token that `iso-builder serve` printed; machines boot from /boot.ipxe"
            );
            let mut response = plain(StatusCode::TEMPORARY_REDIRECT, &text);
            set(&mut response, LOCATION, PAGE);
            response
        }
        ServedReply::NotFound => plain(StatusCode::NOT_FOUND, "there is nothing at this path"),
        ServedReply::Gone => plain(
            StatusCode::GONE,
            "this configuration was handed out already, or its token has expired; boot the machine again",
        ),
        ServedReply::Early(seconds) => {
            let text = "the machine that has this configuration may still wait with it; ask again";
            let mut response = plain(StatusCode::SERVICE_UNAVAILABLE, text);
            set(&mut response, RETRY_AFTER, &seconds.to_string());
            response
        }
        ServedReply::Bad(why) => plain(StatusCode::BAD_REQUEST, why),
        ServedReply::Refused(why) => plain(StatusCode::FORBIDDEN, why),
        ServedReply::OnlyGet => not_allowed("GET"),
        ServedReply::Trouble => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error; the server's log has the reason")
        }
    }
}

fn file(served: ServedFile, selection: RangeSelection) -> Response<ResponseBody> {
    let (tag, length) = (served.tag(), served.length);
    let (status, content) = match selection {
        RangeSelection::Whole => {
            (StatusCode::OK, ResponseBody::part(served, ByteSpan { start: 0, end: length }))
        }
        RangeSelection::Part(span) => (StatusCode::PARTIAL_CONTENT, ResponseBody::part(served, span)),
        RangeSelection::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, ResponseBody::whole("")),
        RangeSelection::NotModified => (StatusCode::NOT_MODIFIED, ResponseBody::whole("")),
    };
    let mut response = with_length(status, content);
    set(&mut response, ETAG, &tag);
    set(&mut response, ACCEPT_RANGES, "bytes");
    set(&mut response, CONTENT_TYPE, "application/octet-stream");
    if let Some(range) = selection.content_range(length) {
        set(&mut response, CONTENT_RANGE, &range);
    }
    response
}

fn not_allowed(allowed: &str) -> Response<ResponseBody> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed here");
    set(&mut response, ALLOW, allowed);
    response
}
