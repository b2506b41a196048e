//! The fleet in HTTP. Bodies of requests are received only from clients that send a token.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Result;
use base::failure::causes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, COOKIE, HeaderName, HeaderValue, IF_NONE_MATCH};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use transfer::server::body::ResponseBody;

use super::response::{plain, unavailable};
use super::router::Router;
use crate::fleet::routes::{self, FleetReply, FleetSources};
use crate::journal::{self, JournalEntry};
use crate::machines::store::StoreUnavailable;
use crate::moment::Moment;

/// Answers a request for the fleet from the client at `peer`. The connection limits how slowly a body may arrive.
pub async fn respond<B>(router: Arc<Router>, peer: IpAddr, request: Request<B>) -> Response<ResponseBody>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let parts = Arc::new(parts);
    let body = match parts.method {
        Method::POST => match receive(&router, peer, &parts, body).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        },
        _ => Bytes::new(),
    };
    let head = parts.method == Method::HEAD;
    // The state is on a disk, which may be slow.
    let known = Arc::clone(&router);
    let answered = tokio::task::spawn_blocking(move || answer(&known, &asked(&parts, peer, &body)));
    match answered.await {
        Ok(Ok(reply)) => rendered(reply, head),
        Ok(Err(error)) => failed(&router, &error),
        Err(_) => trouble(),
    }
}

/// The response to an error of the state.
fn failed(router: &Router, error: &anyhow::Error) -> Response<ResponseBody> {
    if error.is::<StoreUnavailable>() {
        // The store has told the operator.
        return unavailable();
    }
    journal::write(&router.progress, &format!("error: {}", causes(error).join(": ")));
    trouble()
}

fn trouble() -> Response<ResponseBody> {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error; the server's log has the reason")
}

fn asked<'a>(parts: &'a Parts, peer: IpAddr, body: &'a [u8]) -> routes::FleetRequest<'a> {
    let field = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    routes::FleetRequest {
        peer: Some(peer),
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        authorization: field(AUTHORIZATION),
        cookie: field(COOKIE),
        if_none_match: field(IF_NONE_MATCH),
        accept: field(ACCEPT),
        body,
    }
}

/// The whole body, or the answer that refuses it.
async fn receive<B>(
    router: &Arc<Router>,
    peer: IpAddr,
    parts: &Arc<Parts>,
    body: B,
) -> Result<Bytes, Response<ResponseBody>>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (known, head) = (Arc::clone(router), Arc::clone(parts));
    let limit = tokio::task::spawn_blocking(move || {
        known.fleet.body_limit(&asked(&head, peer, b""), &known.store, Moment::now())
    });
    let limit = match limit.await {
        Ok(Ok(Ok(limit))) => limit,
        Ok(Ok(Err(refusal))) => return Err(rendered(refusal, false)),
        Ok(Err(error)) => return Err(failed(router, &error)),
        Err(_) => return Err(trouble()),
    };
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"))
        }
        Err(_) => Err(plain(StatusCode::BAD_REQUEST, "the body is incomplete")),
    }
}

fn answer(router: &Router, request: &routes::FleetRequest<'_>) -> Result<FleetReply> {
    let configurations = router.configurations();
    let note = |entry: JournalEntry| entry.write(&router.progress);
    let known = FleetSources { store: &router.store, configurations: &configurations, note: &note };
    router.fleet.answer(request, known, Moment::now())
}

fn rendered(reply: FleetReply, head: bool) -> Response<ResponseBody> {
    let length = reply.body.len();
    // The length is that of a GET (RFC 9110, section 9.3.2).
    let mut response = Response::new(ResponseBody::whole(if head { Vec::new() } else { reply.body }));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = response.headers_mut();
    for (name, value) in reply.headers {
        // All values come from this server.
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(&value))
        {
            fields.append(name, value);
        }
    }
    if !matches!(reply.status, 204 | 304) {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}

#[cfg(test)]
mod tests;
