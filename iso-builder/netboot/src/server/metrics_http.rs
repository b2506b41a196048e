//! `/metrics` for Prometheus. It takes a token of any role, unless the operator has opened it to everybody.

use std::net::IpAddr;
use std::sync::Arc;

use base::digest::Digest;
use base::failure::causes;
use hyper::header::{ACCEPT, AUTHORIZATION, COOKIE, HeaderName, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use transfer::server::body::ResponseBody;
use transfer::server::response::set_field;

use super::response::{momentary, plain, unavailable};
use super::router::Router;
use crate::fleet::routes::FleetSources;
use crate::journal;
use crate::machines::store::StoreUnavailable;
use crate::metrics::MetricsFormat;
use crate::moment::Moment;

/// Answers a request for [`METRICS`](super::metered::METRICS).
pub async fn respond(router: &Arc<Router>, peer: IpAddr, parts: Parts) -> Response<ResponseBody> {
    let known = Arc::clone(router);
    // The state is on a disk, which may be slow.
    let answered = tokio::task::spawn_blocking(move || answer(&known, peer, &parts)).await;
    answered.unwrap_or_else(|_| trouble())
}

fn trouble() -> Response<ResponseBody> {
    plain(StatusCode::INTERNAL_SERVER_ERROR, "internal error; the server's log has the reason")
}

fn answer(router: &Router, peer: IpAddr, parts: &Parts) -> Response<ResponseBody> {
    let field = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let failed = |error: &anyhow::Error| {
        journal::write(&router.progress, &format!("{peer}: error: {}", causes(error).join(": ")));
    };
    let now = Moment::now();
    if !router.metrics_for_all {
        let (authorization, cookie) = (field(AUTHORIZATION), field(COOKIE));
        let credentials = Digest::of(format!("{authorization:?}\n{cookie:?}").as_bytes());
        match router.fleet.may_look(authorization, cookie, &router.store, now) {
            Ok(true) => router.scrapers.add(credentials),
            Ok(false) => {
                router.scrapers.remove(credentials);
                let text = "the metrics need a token with the role read: `iso-builder tokens new prometheus --role read`";
                let mut response = plain(StatusCode::UNAUTHORIZED, text);
                set_field(&mut response, WWW_AUTHENTICATE, "Bearer realm=\"fleet\"");
                return response;
            }
            Err(error) if error.is::<StoreUnavailable>() && router.scrapers.has(credentials) => {}
            Err(error) if error.is::<StoreUnavailable>() => return unavailable(),
            Err(error) => {
                failed(&error);
                return trouble();
            }
        }
    }
    let configurations = router.configurations();
    let known = FleetSources { store: &router.store, configurations: &configurations, note: &|_| {} };
    let counts = match router.fleet.counts(known, now) {
        Ok(counts) => Some(counts),
        // The store has told the operator.
        Err(error) if error.is::<StoreUnavailable>() => None,
        Err(error) => {
            failed(&error);
            None
        }
    };
    let format = MetricsFormat::of(field(ACCEPT));
    match router.store.metrics().text(counts.as_ref(), format) {
        Ok(text) => momentary(text, format.content_type()),
        Err(_) => trouble(),
    }
}
