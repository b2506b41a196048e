//! Prometheus and node_exporter with what `docs/how-to/metrics.md` shows: two servers with one database, a build that fails, and a
//! node. Every query is answered, and every alert is raised by what it is about and by nothing else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use model::release::MediumKind;
use nqrust_load::boot_server::{BootServer, BootServerPlan, free_address};
use nqrust_load::prepare;
use nqrust_load::report::LoadReport;
use nqrust_load::run::{Goal, LoadPlan};
use nqrust_load::servers::Servers;
use serde_json::Value;
use testing::docs::{self, Fence};
use testing::medium::SampleMedium;
use testing::postgres::PostgresServer;
use testing::programs;

const PAGE: &str = "docs/how-to/metrics.md";
const ISO_BUILDER: &str = env!("CARGO_BIN_EXE_iso-builder");
/// Machines that join; two more fail and fall silent.
const JOINED: u32 = 3;
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
/// The alerts about a build, a node and machines.
const TROUBLES: [&str; 11] = [
    "BuildFailed",
    "BuildOld",
    "CertificateEnds",
    "InstallsFail",
    "InstallsSilent",
    "MirrorDegraded",
    "NodeCrashed",
    "NodeMetricsOld",
    "NodeNotReady",
    "PersistentFull",
    "UpdateRolledBack",
];
/// The questions about what does not happen here.
const NOTHING: [&str; 3] =
    ["connections beyond a limit", "growth of an ISO in a month", "requests of unknown machines in an hour"];
/// How old a file of metrics of a node is that does not write them any more.
const OLD: Duration = Duration::from_secs(3600);

/// A process that ends when this is dropped.
struct Service(Child);

impl Service {
    fn start(command: &mut Command, log: &Path) -> Self {
        let log = File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prometheus with the configuration and the rules of the page.
struct Prometheus {
    address: SocketAddr,
    log: PathBuf,
    _service: Service,
}

/// The blocks of the page that begin with this comment.
fn blocks(comment: &str) -> Vec<String> {
    let page = fs::read_to_string(docs::repository().join(PAGE)).unwrap();
    let (fences, _) = docs::fences(PAGE, &page);
    let of_comment = |fence: &Fence| fence.text.starts_with(comment);
    fences.into_iter().filter(of_comment).map(|fence| fence.text).collect()
}

/// The queries in the tables of the page, by their question.
fn queries() -> BTreeMap<String, String> {
    let page = fs::read_to_string(docs::repository().join(PAGE)).unwrap();
    let mut queries = BTreeMap::new();
    let mut is_table = false;
    for line in page.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        is_table = cells == ["", "Question", "Query", ""] || (is_table && cells.len() == 4);
        if let ["", question, query, ""] = cells[..]
            && is_table
            && query.starts_with('`')
        {
            queries.insert(question.to_owned(), query.trim_matches('`').to_owned());
        }
    }
    queries
}

impl Prometheus {
    /// Replaces what an operator replaces in the configuration, and the interval, and adds the nodes.
    fn start(directory: &Path, programs: [&Path; 2], servers: [SocketAddr; 2], nodes: SocketAddr) -> Self {
        let [prometheus, promtool] = programs;
        let mut parts = blocks("# Prometheus: a part of prometheus.yml").into_iter();
        let mut configuration = parts.next().unwrap();
        assert_eq!(parts.next(), None);
        let [one, other] = servers;
        let token = directory.join("nqrust.token").display().to_string();
        for (on_page, here) in [
            (r#""boot-1.example.org:8080", "boot-2.example.org:8080""#, format!(r#""{one}", "{other}""#)),
            ("/etc/prometheus/nqrust.token", token),
            ("scrape_interval: 30s", "scrape_interval: 1s".into()),
        ] {
            assert_eq!(configuration.matches(on_page).count(), 1, "{on_page}");
            configuration = configuration.replace(on_page, &here);
        }
        let rules = blocks("# Prometheus: a file of rules");
        assert_eq!(rules.len(), 3);
        for (number, text) in rules.iter().enumerate() {
            fs::write(directory.join(format!("rules-{number}.yml")), text).unwrap();
        }
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules-*.yml]\n{configuration}  \
             - job_name: node\n    static_configs: [{{targets: [\"{nodes}\"]}}]\n"
        );
        let file = directory.join("prometheus.yml");
        fs::write(&file, configuration).unwrap();
        let checked = Command::new(promtool).args(["check", "config"]).arg(&file).output().unwrap();
        assert!(checked.status.success(), "{checked:?}");
        let (address, log) = (free_address().unwrap(), directory.join("prometheus.log"));
        let mut command = Command::new(prometheus);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", directory.join("series").display()));
        command.arg(format!("--web.listen-address={address}"));
        let service = Service::start(&mut command, &log);
        let prometheus = Self { address, log, _service: service };
        prometheus.wait("it listens", || TcpStream::connect(address).is_ok());
        prometheus
    }

    fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            let log = || fs::read_to_string(&self.log).unwrap_or_default();
            assert!(since.elapsed() < LIMIT, "not so: {what}\n{:#}\n{}", self.ask("alerts"), log());
            sleep(PAUSE);
        }
    }

    /// What the API answers (<https://prometheus.io/docs/prometheus/latest/querying/api/>).
    fn ask(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET /api/v1/{path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The values of a query.
    fn values(&self, query: &str) -> Vec<f64> {
        let data = self.ask(&format!("query?query={}", base::percent::encode(query)));
        let value = |series: &Value| series["value"][1].as_str().unwrap().parse().unwrap();
        data["result"].as_array().unwrap().iter().map(value).collect()
    }

    /// The alerts that are raised, or will be if it stays so, with their texts.
    fn alerts(&self) -> BTreeMap<String, String> {
        let data = self.ask("alerts");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let alert =
            |alert: &Value| (text(&alert["labels"]["alertname"]), text(&alert["annotations"]["summary"]));
        data["alerts"].as_array().unwrap().iter().map(alert).collect()
    }

    /// Waits until these alerts are there, and no others.
    fn wait_for(&self, expected: &[&str]) {
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        self.wait(&format!("{expected:?}"), || self.alerts().keys().map(String::as_str).eq(expected.clone()));
        for text in self.alerts().values() {
            assert!(!text.contains(['{', '<', '%']), "{text}");
        }
    }
}

/// Machines that reach this goal.
fn machines(servers: [SocketAddr; 2], first: u32, machines: u32, goal: Goal) {
    let mut plan = LoadPlan { first, machines, ..LoadPlan::default() };
    plan.install.goal = goal;
    let result = plan.run(Servers::new(servers.into()).unwrap()).unwrap();
    let report = LoadReport::new(&plan, &result, &[], &[]);
    assert!(report.is_good(), "{}", report.table());
}

/// A build whose first step ends well, after one that was successful long ago, replaces this file.
fn build_fails(directory: &Path, metrics: &Path) {
    let success = "nqrust_image_build_last_success_time_seconds{definition=\"image\",variant=\"\",architecture=\"amd64\"} 7\n";
    fs::write(metrics, success).unwrap();
    // What is packed as a base has no OS in it.
    for folder in ["usr", "etc"] {
        fs::create_dir_all(directory.join(folder)).unwrap();
    }
    let mut tar = Command::new("tar");
    tar.args(["--create", "--file", "base.tar", "usr", "etc"]).current_dir(directory);
    assert!(tar.status().unwrap().success());
    let definition =
        "id: os\nname: OS\nversion: '1'\nbase: {archive: {path: base.tar}}\ntrust: {unsigned: allow}\n";
    fs::write(directory.join("image.yaml"), definition).unwrap();
    let mut build = Command::new(ISO_BUILDER);
    build.args(["build", "image.yaml", "--output", "output", "--cache-dir", "cache", "--metrics"]);
    build.arg(metrics).current_dir(directory).env("NQRUST_INSTALLER", testing::elf::installer(directory));
    let built = build.output().unwrap();
    let told = String::from_utf8(built.stderr).unwrap();
    assert!(told.contains("the base lacks what a node needs"), "{told}");
}

/// The file of a node, which is well or has every trouble that an alert is about.
fn node(is_well: bool) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let year = 365 * 86400;
    let series = [
        ("ready", [1, 0]),
        ("update_rolled_back", [0, 1]),
        (r#"mirror_disks{array="system"}"#, [2, 2]),
        (r#"mirror_disks_in_sync{array="system"}"#, [2, 1]),
        (r#"mirror_rebuilding{array="system"}"#, [0, 0]),
        (
            r#"certificate_end_time_seconds{file="/etc/kubernetes/pki/apiserver.crt"}"#,
            [now + year, now + 86400],
        ),
        ("persistent_size_bytes", [1000, 1000]),
        ("persistent_free_bytes", [900, 99]),
        ("last_crash_time_seconds", [now - year, now - 60]),
        ("unexplained_end", [0, 0]),
    ];
    let line =
        |(name, values): (&str, [u64; 2])| format!("nqrust_node_{name} {}\n", values[usize::from(!is_well)]);
    series.map(line).concat()
}

#[test]
fn prometheus_takes_all_that_the_page_about_metrics_shows() {
    let names = ["prometheus", "promtool", "prometheus-node-exporter"];
    let [Some(prometheus), Some(promtool), Some(exporter)] = names.map(programs::find) else {
        return programs::leave_out("Prometheus", "Prometheus and node_exporter are not on this machine");
    };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (sample, mut database) = (SampleMedium::bootable(MediumKind::Full), PostgresServer::start());
    let url = database.database();
    prepare::configurations(&path("nodes"), JOINED + 2, 1).unwrap();
    let plan = BootServerPlan {
        program: Path::new(ISO_BUILDER),
        medium: &sample.tree(),
        nodes: &path("nodes"),
        database: Some(&url),
        further: &[],
    };
    let start = |name| BootServer::start(&path(name), plan).unwrap();
    let [one, mut other] = ["one", "other"].map(start);
    let servers = [one.address, other.address];
    let mut tokens = Command::new(ISO_BUILDER);
    tokens.args(["tokens", "new", "prometheus", "--role", "read", "--expires", "never", "--state", &url]);
    let made = tokens.arg("--output").arg(path("nqrust.token")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let files = path("textfiles");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("node.prom"), node(true)).unwrap();
    let at = free_address().unwrap();
    let mut command = Command::new(exporter);
    command.arg("--collector.disable-defaults").arg("--collector.textfile");
    command.arg(format!("--collector.textfile.directory={}", files.display()));
    let _exporter =
        Service::start(command.arg(format!("--web.listen-address={at}")), &path("node_exporter.log"));
    let prometheus = Prometheus::start(directory.path(), [&prometheus, &promtool], servers, at);

    // All is well.
    prometheus.wait("both servers and the node are scraped", || prometheus.values("up == 1").len() == 3);
    machines(servers, 0, JOINED, Goal::Joined);
    let joined = r#"max(nqrust_machines{stage="joined"})"#;
    prometheus.wait("machines have joined", || prometheus.values(joined) == [f64::from(JOINED)]);
    for (query, expected) in [
        ("sum(nqrust_nodes_joined_total)", JOINED),
        ("sum(nqrust_configurations_handed_out_total)", JOINED),
        (r#"sum(nqrust_installs_total{result="installed"})"#, JOINED),
        ("max(nqrust_configurations)", JOINED + 2),
        ("max(nqrust_machines_not_heard_of)", 2),
        ("min(nqrust_state_up)", 1),
    ] {
        prometheus.wait(query, || prometheus.values(query) == [f64::from(expected)]);
    }
    prometheus.wait_for(&[]);

    // A build fails, a node has every trouble, an install fails, and a machine has not been heard of for long.
    build_fails(&path("build"), &files.join("image.prom"));
    let file = files.join("node.prom");
    fs::write(&file, node(false)).unwrap();
    File::options().write(true).open(&file).unwrap().set_modified(SystemTime::now() - OLD).unwrap();
    machines(servers, JOINED, 1, Goal::Failed);
    machines(servers, JOINED + 1, 1, Goal::Boot);
    database.run(&url, "UPDATE nqrust.machines SET last_seen = last_seen - 3600 WHERE state <> 'joined'");
    let mut expected = TROUBLES.to_vec();
    prometheus.wait_for(&expected);
    let queries = queries();
    assert_eq!(queries.len(), 8, "{queries:?}");
    for (question, query) in &queries {
        let values = prometheus.values(query);
        let is_empty = NOTHING.contains(&question.as_str());
        assert_eq!(values.is_empty(), is_empty, "{question}: {values:?}");
    }
    let installs = prometheus.values(&queries["installs an hour"]);
    assert!((f64::from(JOINED)..f64::from(JOINED) + 1.0).contains(&installs[0]), "{installs:?}");

    // A server ends, and then the database.
    other.kill().unwrap();
    expected.push("BootServerDown");
    prometheus.wait_for(&expected);
    database.stop();
    // What the state says of machines is not known any more.
    expected.retain(|name| !name.starts_with("Installs"));
    expected.push("BootServerWithoutState");
    prometheus.wait_for(&expected);
    let shown: usize =
        blocks("# Prometheus: a file of rules").iter().map(|rules| rules.matches("- alert: ").count()).sum();
    assert_eq!(shown, expected.len() + 2, "every alert of the page was raised");
}
