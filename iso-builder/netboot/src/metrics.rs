//! Metrics of a server for Prometheus: what is counted, and the text in which it is told.
//!
//! Names follow the conventions of Prometheus (<https://prometheus.io/docs/practices/naming/>). No label has a value that a client
//! can invent: paths are routes, and machines are counted, not named.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use process::ProcessFigures;

mod process;

/// The upper bounds of durations of requests in seconds: scripts take milliseconds, transfers of an OS image minutes.
const REQUEST_BUCKETS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0];
/// Those of transactions.
const STORE_BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReleaseLabels {
    name: String,
    version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    method: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BootLabels {
    boots: &'static str,
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreErrorLabels {
    operation: &'static str,
    error: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    action: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    stage: &'static str,
    group: &'static str,
}

type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of one server, from its start on.
#[derive(Debug)]
pub struct ServerMetrics {
    registry: Registry,
    release: Family<ReleaseLabels, Gauge>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Durations<RouteLabel>,
    sent: Family<RouteLabel, Counter>,
    connections: Gauge,
    refused: Family<LimitLabel, Counter>,
    boots: Family<BootLabels, Counter>,
    configurations: Counter,
    installs: Family<ResultLabel, Counter>,
    joined: Counter,
    actions: Family<ActionLabels, Counter>,
    store_seconds: Durations<OperationLabel>,
    store_errors: Family<StoreErrorLabels, Counter>,
    state_up: Gauge,
    machines: Family<StageLabels, Gauge>,
    silent: Gauge,
    conflicts: Gauge,
    not_heard_of: Gauge,
    known_configurations: Gauge,
    process: ProcessFigures,
}

/// The fleet at the moment of a scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetCounts {
    /// Each stage with its group and the number of its machines, also those without any.
    pub stages: Vec<(&'static str, &'static str, usize)>,
    /// Machines that install and have not reported for longer than an install is ever silent.
    pub silent: usize,
    pub conflicts: usize,
    pub not_heard_of: usize,
    pub configurations: usize,
}

/// The form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// By the header field `Accept` of a request: Prometheus names what it prefers first.
    #[must_use]
    pub fn of(accept: Option<&str>) -> Self {
        let mut kinds = accept.unwrap_or_default().split(',');
        match kinds.any(|kind| kind.trim().starts_with("application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let request_seconds: fn() -> Histogram = || Histogram::new(REQUEST_BUCKETS);
        let store_seconds: fn() -> Histogram = || Histogram::new(STORE_BUCKETS);
        let mut metrics = Self {
            registry: Registry::default(),
            release: Family::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(request_seconds),
            sent: Family::default(),
            connections: Gauge::default(),
            refused: Family::default(),
            boots: Family::default(),
            configurations: Counter::default(),
            installs: Family::default(),
            joined: Counter::default(),
            actions: Family::default(),
            store_seconds: Family::new_with_constructor(store_seconds),
            store_errors: Family::default(),
            state_up: Gauge::default(),
            machines: Family::default(),
            silent: Gauge::default(),
            conflicts: Gauge::default(),
            not_heard_of: Gauge::default(),
            known_configurations: Gauge::default(),
            process: ProcessFigures::default(),
        };
        metrics.register();
        // Series that exist from the start on, so that the first increase is seen.
        for result in ["installed", "failed"] {
            let _ = metrics.installs.get_or_create(&ResultLabel { result });
        }
        for limit in ["client", "server"] {
            let _ = metrics.refused.get_or_create(&LimitLabel { limit });
        }
        metrics
    }
}

impl ServerMetrics {
    fn register(&mut self) {
        let all = &mut self.registry;
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        all.register("nqrust_build", "The version of this program", build);
        all.register("nqrust_release_info", "The release that is served", self.release.clone());
        let help = "Requests that were answered, by route, method and status";
        all.register("nqrust_http_requests", help, self.requests.clone());
        let help = "Time from the head of a request to the last byte of its answer";
        let unit = || Unit::Seconds;
        all.register_with_unit("nqrust_http_request_duration", help, unit(), self.request_seconds.clone());
        let help = "Bytes of bodies that were sent";
        all.register_with_unit("nqrust_http_sent", help, Unit::Bytes, self.sent.clone());
        all.register("nqrust_http_connections", "Connections that are open", self.connections.clone());
        let help = "Connections that were refused, by the limit that they exceed";
        all.register("nqrust_http_connections_refused", help, self.refused.clone());
        let help = "Requests of machines for a boot script, by what they boot and why";
        all.register("nqrust_boot_requests", help, self.boots.clone());
        let help = "Configurations that were handed out, each once";
        all.register("nqrust_configurations_handed_out", help, self.configurations.clone());
        let help = "Installs whose end was reported";
        all.register("nqrust_installs", help, self.installs.clone());
        let help = "Nodes that were reported ready in their cluster";
        all.register("nqrust_nodes_joined", help, self.joined.clone());
        let help = "Actions of operators, by their result";
        all.register("nqrust_operator_actions", help, self.actions.clone());
        let help = "Time of transactions of the state, including the wait for a lock or a connection";
        all.register_with_unit("nqrust_state_duration", help, unit(), self.store_seconds.clone());
        let help = "Transactions of the state that failed, by operation and kind of error";
        all.register("nqrust_state_errors", help, self.store_errors.clone());
        let help = "Whether the state could be read at this scrape";
        all.register("nqrust_state_up", help, self.state_up.clone());
        let help = "Machines of the fleet by stage and group";
        all.register("nqrust_machines", help, self.machines.clone());
        let help = "Installing machines that have stopped reporting";
        all.register("nqrust_machines_silent", help, self.silent.clone());
        let help = "Conflicts of identifiers that were not dismissed";
        all.register("nqrust_identity_conflicts", help, self.conflicts.clone());
        let help = "Configured machines that have never requested a boot script";
        all.register("nqrust_machines_not_heard_of", help, self.not_heard_of.clone());
        let help = "Configurations that this server has read";
        all.register("nqrust_configurations", help, self.known_configurations.clone());
        self.process.register(all);
    }

    /// The name and version of the release that this server serves.
    pub fn serves(&self, name: &str, version: &str) {
        let labels = ReleaseLabels { name: name.to_owned(), version: version.to_owned() };
        self.release.get_or_create(&labels).set(1);
    }

    /// A client has connected; the connection counts as open until this is dropped.
    #[must_use]
    pub fn connected(self: &Arc<Self>) -> OpenConnectionCount {
        self.connections.inc();
        OpenConnectionCount(Arc::clone(self))
    }

    /// A connection exceeds a limit: that of one `client` or that of the `server`.
    pub fn connection_refused(&self, limit: &'static str) {
        self.refused.get_or_create(&LimitLabel { limit }).inc();
    }

    /// A machine was answered what it boots, and for the disk why.
    pub fn boot_answered(&self, boots: &'static str, reason: &str) {
        self.boots.get_or_create(&BootLabels { boots, reason: reason.to_owned() }).inc();
    }

    pub fn configuration_handed_out(&self) {
        self.configurations.inc();
    }

    /// An install has ended, and its end is stored.
    pub fn install_ended(&self, is_installed: bool) {
        let result = if is_installed { "installed" } else { "failed" };
        self.installs.get_or_create(&ResultLabel { result }).inc();
    }

    pub fn node_joined(&self) {
        self.joined.inc();
    }

    pub fn operator_acted(&self, action: &'static str, result: &'static str) {
        self.actions.get_or_create(&ActionLabels { action, result }).inc();
    }

    /// A transaction of the state took so long; `error` is the kind of its error, if it failed.
    pub fn transaction_ended(&self, operation: &'static str, took: Duration, error: Option<&'static str>) {
        self.store_seconds.get_or_create(&OperationLabel { operation }).observe(took.as_secs_f64());
        if let Some(error) = error {
            self.store_errors.get_or_create(&StoreErrorLabels { operation, error }).inc();
        }
    }

    /// The text for a scrape; `fleet` is none while the state cannot be read.
    pub fn text(&self, fleet: Option<&FleetCounts>, format: MetricsFormat) -> Result<String, fmt::Error> {
        self.state_up.set(fleet.is_some().into());
        // What was counted before is not told again as if it were so now.
        self.machines.clear();
        let none = FleetCounts::default();
        let counts = fleet.unwrap_or(&none);
        for (stage, group, count) in counts.stages.iter().copied() {
            self.machines.get_or_create(&StageLabels { stage, group }).set(number(count));
        }
        for (gauge, count) in [
            (&self.silent, counts.silent),
            (&self.conflicts, counts.conflicts),
            (&self.not_heard_of, counts.not_heard_of),
            (&self.known_configurations, counts.configurations),
        ] {
            gauge.set(number(count));
        }
        self.process.look();
        let mut all = String::new();
        match format {
            MetricsFormat::Prometheus => prometheus_text::encode(&mut all, &self.registry)?,
            MetricsFormat::OpenMetrics => text::encode(&mut all, &self.registry)?,
        }
        Ok(all)
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An open connection.
#[derive(Debug)]
pub struct OpenConnectionCount(Arc<ServerMetrics>);

impl Drop for OpenConnectionCount {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

/// One request, which is counted with its duration when this is dropped.
#[derive(Debug)]
pub struct RequestMeter {
    metrics: Arc<ServerMetrics>,
    route: &'static str,
    method: &'static str,
    code: Option<u16>,
    since: Instant,
    sent: Counter,
}

impl RequestMeter {
    /// A request has begun; `route` and `method` have few values.
    #[must_use]
    pub fn begin(metrics: &Arc<ServerMetrics>, route: &'static str, method: &str) -> Self {
        let method = match method {
            "GET" => "GET",
            "HEAD" => "HEAD",
            "POST" => "POST",
            _ => "other",
        };
        let sent = metrics.sent.get_or_create_owned(&RouteLabel { route });
        Self { metrics: Arc::clone(metrics), route, method, code: None, since: Instant::now(), sent }
    }

    /// The status of its answer.
    pub fn answered(&mut self, code: u16) {
        self.code = Some(code);
    }

    /// So many bytes of the answer's body were sent.
    pub fn sent(&self, bytes: u64) {
        self.sent.inc_by(bytes);
    }
}

impl Drop for RequestMeter {
    fn drop(&mut self) {
        // A connection that ends before its answer begins is no answer.
        let Some(code) = self.code else { return };
        let Self { route, method, .. } = *self;
        self.metrics.requests.get_or_create(&RequestLabels { route, method, code }).inc();
        let seconds = self.since.elapsed().as_secs_f64();
        self.metrics.request_seconds.get_or_create(&RouteLabel { route }).observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &ServerMetrics, format: MetricsFormat) -> String {
        let stages = vec![("writing", "installing", 7), ("failed", "failed", 0)];
        let counts = FleetCounts { stages, silent: 1, conflicts: 2, not_heard_of: 3, configurations: 4 };
        metrics.text(Some(&counts), format).unwrap()
    }

    /// The value of a series.
    fn value<'a>(text: &'a str, series: &str) -> Option<&'a str> {
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
    }

    #[test]
    fn a_request_is_counted_with_what_was_sent_of_its_answer() {
        let metrics = Arc::new(ServerMetrics::default());
        for (method, code, sent) in
            [("GET", Some(206), 100), ("GET", Some(206), 11), ("PATCH", Some(405), 0), ("GET", None, 5)]
        {
            let mut meter = RequestMeter::begin(&metrics, "medium", method);
            code.into_iter().for_each(|code| meter.answered(code));
            meter.sent(sent);
        }
        let text = text(&metrics, MetricsFormat::Prometheus);
        for (series, expected) in [
            (r#"nqrust_http_requests_total{route="medium",method="GET",code="206"}"#, Some("2")),
            (r#"nqrust_http_requests_total{route="medium",method="other",code="405"}"#, Some("1")),
            (r#"nqrust_http_sent_bytes_total{route="medium"}"#, Some("116")),
            (r#"nqrust_http_request_duration_seconds_count{route="medium"}"#, Some("3")),
            (r#"nqrust_http_request_duration_seconds_bucket{route="medium",le="+Inf"}"#, Some("3")),
            (r#"nqrust_installs_total{result="failed"}"#, Some("0")),
            (r#"nqrust_machines{stage="writing",group="installing"}"#, Some("7")),
            (r#"nqrust_machines{stage="failed",group="failed"}"#, Some("0")),
            ("nqrust_machines_silent", Some("1")),
            ("nqrust_state_up", Some("1")),
        ] {
            assert_eq!(value(&text, series), expected, "{series} in {text}");
        }
    }

    #[test]
    fn a_fleet_that_cannot_be_read_is_not_told_as_it_was() {
        let metrics = ServerMetrics::default();
        assert!(text(&metrics, MetricsFormat::Prometheus).contains("nqrust_machines{"));
        let without = metrics.text(None, MetricsFormat::Prometheus).unwrap();
        assert_eq!(value(&without, "nqrust_state_up"), Some("0"));
        assert!(!without.contains("nqrust_machines{"), "{without}");
    }

    #[test]
    fn a_connection_is_open_until_it_is_dropped() {
        let metrics = Arc::new(ServerMetrics::default());
        let open = metrics.connected();
        let _other = metrics.connected();
        let count = || text(&metrics, MetricsFormat::Prometheus);
        assert_eq!(value(&count(), "nqrust_http_connections"), Some("2"));
        drop(open);
        assert_eq!(value(&count(), "nqrust_http_connections"), Some("1"));
    }

    #[test]
    fn the_form_is_what_the_scraper_accepts() {
        for (accept, format) in [
            (None, MetricsFormat::Prometheus),
            (Some("*/*"), MetricsFormat::Prometheus),
            (Some("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), MetricsFormat::Prometheus),
            (
                Some("application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"),
                MetricsFormat::OpenMetrics,
            ),
        ] {
            assert_eq!(MetricsFormat::of(accept), format, "{accept:?}");
        }
        let metrics = ServerMetrics::default();
        assert!(text(&metrics, MetricsFormat::OpenMetrics).ends_with("# EOF\n"));
        assert!(!text(&metrics, MetricsFormat::Prometheus).contains("# EOF"));
    }

    #[test]
    fn every_metric_has_help_and_a_name_of_the_conventions() {
        let metrics = Arc::new(ServerMetrics::default());
        RequestMeter::begin(&metrics, "boot", "GET").answered(200);
        metrics.transaction_ended("read", Duration::from_millis(3), Some("unavailable"));
        metrics.boot_answered("disk", "unknown");
        metrics.operator_acted("deny", "done");
        let text = text(&metrics, MetricsFormat::Prometheus);
        let mut families = 0;
        for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = line.split_once(' ').unwrap();
            families += 1;
            assert!(text.contains(&format!("# HELP {name} ")), "{name}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(name.starts_with("nqrust_") || name.starts_with("process_"), "{name}");
        }
        assert!(families > 20, "{text}");
    }

    #[test]
    fn the_page_about_metrics_has_those_of_a_server_and_no_others() {
        let metrics = Arc::new(ServerMetrics::default());
        metrics.serves("a", "1");
        RequestMeter::begin(&metrics, "boot", "GET").answered(200);
        metrics.transaction_ended("read", Duration::from_millis(3), Some("unavailable"));
        metrics.boot_answered("disk", "unknown");
        metrics.operator_acted("deny", "done");
        let text = text(&metrics, MetricsFormat::Prometheus);
        testing::docs::metrics_are_those_of("Boot servers", &text);
    }
}
