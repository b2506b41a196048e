//! Counts requests: the route of each, and the bytes of its answer as they are sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use super::health::{LIVE, READY};
use crate::fleet::query::PAGE;
use crate::fleet::routes::JSON;
use crate::metrics::RequestMeter;
use crate::protocol::{BOOT, CONFIGURATION, GRUB, REPORT};
use medium::network_boot::{GRUB_START, IPXE_START, LOADERS, MEDIUM};

/// Metrics for Prometheus.
pub const METRICS: &str = "/metrics";

/// The route of a path, for labels of metrics.
#[must_use]
pub fn route(path: &str) -> &'static str {
    let below =
        |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match path {
        LIVE | READY => "health",
        METRICS => "metrics",
        IPXE_START | GRUB_START => "start",
        BOOT => "boot",
        path if path.starts_with(GRUB) => "boot",
        path if path.starts_with(MEDIUM) => "medium",
        path if path.starts_with(LOADERS) => "loaders",
        path if path.starts_with(CONFIGURATION) => "configuration",
        path if path.starts_with(REPORT) => "report",
        _ if below(PAGE) => "page",
        _ if below(JSON) => "fleet",
        _ => "other",
    }
}

/// A body whose bytes are counted as they are sent. Its request ends when it is dropped.
#[derive(Debug)]
pub struct MeteredBody<B> {
    body: B,
    meter: RequestMeter,
}

impl<B> MeteredBody<B> {
    #[must_use]
    pub fn new(body: B, meter: RequestMeter) -> Self {
        Self { body, meter }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for MeteredBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.meter.sent(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_of_few_routes_whatever_it_is() {
        for (path, expected) in [
            ("/", "other"),
            ("/livez", "health"),
            ("/readyz", "health"),
            ("/metrics", "metrics"),
            ("/boot.ipxe", "start"),
            ("/grub/grub.cfg", "start"),
            ("/v1/boot", "boot"),
            ("/v1/boot/x", "other"),
            ("/v1/grub/52:54:00:00:00:01", "boot"),
            ("/medium/live/initrd", "medium"),
            ("/loaders/ipxe.efi", "loaders"),
            ("/v1/config/a-token", "configuration"),
            ("/v1/report/a-token", "report"),
            ("/fleet", "page"),
            ("/fleet/machines/x/deny", "page"),
            ("/fleets", "other"),
            ("/v1/fleet", "fleet"),
            ("/v1/fleet/audit", "fleet"),
            ("/wp-login.php", "other"),
        ] {
            assert_eq!(route(path), expected, "{path}");
        }
    }
}
