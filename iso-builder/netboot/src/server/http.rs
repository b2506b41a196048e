//! Requests and responses of [`super::router`] in hyper's types.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, HOST, LOCATION, ORIGIN, REFERER, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use transfer::range::RangeFields;
use transfer::server::body::ResponseBody;
use transfer::server::response::{file_response, set_field};

use super::fleet_http;
use super::health::{self, LIVE, READY};
use super::metered::METRICS;
use super::metrics_http;
use super::provenance::RequestProvenance;
use super::response::{TEXT, later, momentary, plain, unavailable};
use super::router::{RETRY, Router, ServedReply, ServedRequest, trouble};
use crate::fleet::query::PAGE;
use crate::fleet::routes::Fleet;
use crate::moment::Moment;

/// The header with the kind of site that caused a request (W3C Fetch Metadata Request Headers).
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
    let mut response = match &*path {
        // No thread that may wait for a disk has part in it.
        LIVE => momentary("alive\n".to_owned(), TEXT),
        METRICS => metrics_http::respond(&router, peer, parts).await,
        READY => readiness(&router, parts.uri.query().unwrap_or_default()).await,
        _ => answer(router, peer, parts, head).await,
    };
    if head {
        // The length is that of a GET (RFC 9110, section 9.3.2).
        *response.body_mut() = ResponseBody::whole("");
    }
    Ok(response)
}

async fn readiness(router: &Arc<Router>, query: &str) -> Response<ResponseBody> {
    let known = Arc::clone(router);
    let look = move |round| health::look(&known.store, &known.files, round);
    match router.health.ready(query, &router.progress, look).await {
        Ok(report) => {
            let mut response = momentary(report.text, TEXT);
            if !report.ready {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                set_field(&mut response, RETRY_AFTER, &RETRY.to_string());
            }
            response
        }
        Err(why) => plain(StatusCode::BAD_REQUEST, &why),
    }
}

/// The answer to a machine or a browser.
async fn answer(router: Arc<Router>, peer: IpAddr, parts: Parts, head: bool) -> Response<ResponseBody> {
    let path = parts.uri.path().to_owned();
    // The state is on a disk, which may be slow.
    let answered = tokio::task::spawn_blocking(move || {
        let asked = ServedRequest {
            peer,
            head,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            host: parts.headers.get(HOST).and_then(|value| value.to_str().ok()),
            provenance: RequestProvenance {
                fetch_site: parts.headers.get(FETCH_SITE).map(|value| value.to_str().unwrap_or_default()),
                origin: parts.headers.contains_key(ORIGIN),
                referer: parts.headers.contains_key(REFERER),
            },
            fields: RangeFields::of(&parts.headers),
        };
        router.answer(&asked, Moment::now())
    });
    rendered(answered.await.unwrap_or_else(|_| trouble(&path)))
}

fn rendered(reply: ServedReply) -> Response<ResponseBody> {
    match reply {
        ServedReply::File(served, selection, policy) => file_response(served, selection, policy),
        ServedReply::Script(text) => momentary(text, TEXT),
        ServedReply::Configuration(text) => momentary(text.expose().to_owned(), "application/yaml"),
        ServedReply::FleetPage => {
            let text = format!(
                "the fleet page is {PAGE}, with the token that `iso-builder serve` printed; machines boot from /boot.ipxe"
            );
            let mut response = plain(StatusCode::TEMPORARY_REDIRECT, &text);
            set_field(&mut response, LOCATION, PAGE);
            response
        }
        ServedReply::NotFound => plain(StatusCode::NOT_FOUND, "not found"),
        ServedReply::Gone => plain(
            StatusCode::GONE,
            "this configuration was handed out already, or its token has expired; boot the machine again",
        ),
        ServedReply::Early(seconds) => {
            later(seconds, "the machine that has this configuration may still wait with it; ask again")
        }
        ServedReply::Unavailable => unavailable(),
        ServedReply::Bad(why) => plain(StatusCode::BAD_REQUEST, why),
        ServedReply::Refused(why) => plain(StatusCode::FORBIDDEN, why),
        ServedReply::OnlyGet => not_allowed("GET"),
        ServedReply::Trouble => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error; the server's log has the reason")
        }
    }
}

fn not_allowed(allowed: &str) -> Response<ResponseBody> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    set_field(&mut response, ALLOW, allowed);
    response
}

#[cfg(test)]
mod tests;
