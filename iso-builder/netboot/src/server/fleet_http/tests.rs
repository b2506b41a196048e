//! A server on the loopback interface, with the reports of a real installer.

use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use crate::fleet::routes::Fleet;
use crate::machines::configurations::{ConfigurationSource, Configurations};
use crate::server::connections::NetbootConnections;
use crate::test_support::{NODE, medium};
use base::progress::Progress;
use medium::network_boot::files::MediumFiles;
use medium::network_boot::system::BootSystem;
use model::config::Secret;
use model::fleet::RunFailure;
use model::machine::Identity;
use model::release::MediumKind;
use reporting::fleet::{self, Reporter, ReporterSetup};
use transfer::server::accept::{ServerLimits, listen, serve};

/// A server with a configuration for one machine. It runs as long as the process.
fn server() -> SocketAddr {
    static SERVER: OnceLock<(SocketAddr, tempfile::TempDir, tokio::runtime::Runtime)> = OnceLock::new();
    let (address, ..) = SERVER.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let nodes = directory.path().join("nodes");
        std::fs::create_dir(&nodes).unwrap();
        for last in [56, 57] {
            std::fs::write(nodes.join(format!("mac-52-54-00-12-34-{last}.yaml")), NODE).unwrap();
        }
        let files = MediumFiles::open(&medium(MediumKind::Full).tree()).unwrap();
        let system = BootSystem::of(&files, &[]).unwrap();
        let store = crate::test_support::registry(&directory.path().join("state"));
        let configurations = Configurations::load(&ConfigurationSource::Directory(nodes), &[]).unwrap();
        let mut router = Router::new(files, system, store, configurations);
        router.fleet = Fleet::new(&Secret::new("T-secret"), false);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(listen(([127, 0, 0, 1], 0).into())).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::watch::channel(false);
        runtime.spawn(async move {
            let connections = NetbootConnections { router: Arc::new(router), tls: None };
            serve(listener, Arc::new(connections), ServerLimits::default(), stopped).await;
            drop(stop);
        });
        (address, directory, runtime)
    });
    *address
}

/// The answer to a request with `body` whose head ends with `head`.
fn ask(head: &str, body: &[u8]) -> String {
    let address = server();
    let mut client = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(client, "{head}Host: {address}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n").unwrap();
    // A server that refuses a body does not read all of it.
    let _ = client.write_all(body);
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn json() -> serde_json::Value {
    let answer = ask("GET /v1/fleet HTTP/1.1\r\nAuthorization: Bearer T-secret\r\n", b"");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn an_installer_that_was_booted_reports_and_is_seen() {
    let script = ask("GET /v1/boot?mac=52-54-00-12-34-56 HTTP/1.1\r\n", b"");
    let word = |name: &str| {
        let mut words = script.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)).unwrap_or_else(|| panic!("{script}")).to_owned()
    };
    let path = word("nqrust.install.config_url=").split('/').skip(3).collect::<Vec<_>>().join("/");
    assert!(ask(&format!("GET /{path} HTTP/1.1\r\n"), b"").starts_with("HTTP/1.1 200"));
    let progress = Progress::silent();
    let (url, machine) = (word("nqrust.report=").parse().unwrap(), Identity::default());
    let mut policy = fleet::policy();
    policy.flush = Duration::from_secs(60);
    let reporter = Reporter::begin(ReporterSetup { url, machine, policy, progress: progress.clone() });
    reporter.hostname(Some("node-1"));
    drop(progress.step("image", "Writing the OS image", Some(9)));
    reporter.fall_silent();
    progress.finish("Installation failed", 6);
    let failed = RunFailure { causes: vec!["the disk is gone".into()], hints: Vec::new(), exit_code: 6 };
    reporter.conclude(Some((failed, "all of it\n".into())));
    let json = json();
    let machines = json["machines"].as_array().unwrap();
    let machine =
        machines.iter().find(|machine| machine["name"] == "node-1").unwrap_or_else(|| panic!("{json:#}"));
    assert_eq!((&machine["name"], &machine["stage"]), (&"node-1".into(), &"failed".into()), "{json:#}");
    assert_eq!(machine["error"]["causes"][0], "the disk is gone");
    let id = machine["id"].as_str().unwrap();
    let log =
        ask(&format!("GET /fleet/machines/{id}/log HTTP/1.1\r\nAuthorization: Bearer T-secret\r\n"), b"");
    assert!(log.ends_with("all of it\n"), "{log}");
}

/// The answer to a request that sends only one byte of its body, and how long it took until the server closed the
/// connection.
fn ask_without_body(head: &str) -> (String, Duration) {
    let address = server();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let began = std::time::Instant::now();
    write!(client, "{head}Host: {address}\r\nContent-Length: 4000\r\n\r\nx").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    (answer.to_lowercase(), began.elapsed())
}

#[test]
fn a_body_is_received_from_nobody_without_a_token() {
    let opens = "Authorization: Bearer T-secret\r\n";
    for (head, status) in [
        ("POST /v1/report/ffffffffffffffffffffffffffffffff HTTP/1.1\r\n", "403"),
        ("POST /v1/report/x HTTP/1.1\r\n", "403"),
        ("POST /fleet HTTP/1.1\r\n", "401"),
        ("POST /fleet/machines/00000000-0000-0000-0000-000000000000/deny HTTP/1.1\r\n", "401"),
        (&format!("POST /fleet HTTP/1.1\r\n{opens}"), "404"),
        ("PUT /fleet HTTP/1.1\r\n", "405"),
        ("POST /v1/boot HTTP/1.1\r\n", "405"),
        ("GET /boot.ipxe HTTP/1.1\r\n", "200"),
    ] {
        let (answer, took) = ask_without_body(head);
        assert!(answer.starts_with(&format!("http/1.1 {status}")), "{head}{answer}");
        assert!(
            answer.contains("connection: close\r\n") && took < Duration::from_secs(10),
            "{took:?} {answer}"
        );
    }
}

#[test]
fn a_body_that_a_machine_may_send_has_a_limit() {
    let script = ask("GET /v1/boot?mac=52-54-00-12-34-57 HTTP/1.1\r\n", b"");
    let mut words = script.split_whitespace();
    let report =
        words.find_map(|word| word.strip_prefix("nqrust.report=")).unwrap_or_else(|| panic!("{script}"));
    let path = report.split('/').skip(3).collect::<Vec<_>>().join("/");
    let answer = ask(&format!("POST /{path} HTTP/1.1\r\n"), &vec![b'x'; (1 << 20) + 1]);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let answer = ask(&format!("POST /{path} HTTP/1.1\r\n"), &[b'x'; 1 << 20]);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[test]
fn a_page_comes_with_its_policy_and_a_head_without_its_body() {
    let page = ask("GET /fleet HTTP/1.1\r\nAuthorization: Bearer T-secret\r\n", b"").to_lowercase();
    assert!(page.contains("content-security-policy: default-src 'none'") && page.contains("<h1>"), "{page}");
    let head = ask("HEAD /fleet HTTP/1.1\r\nAuthorization: Bearer T-secret\r\n", b"").to_lowercase();
    assert!(head.starts_with("http/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(ask("GET /fleet HTTP/1.1\r\n", b"").starts_with("HTTP/1.1 401"));
}

#[test]
fn a_load_balancer_is_told_whether_the_server_is_ready() {
    for (request, status, text) in [
        ("GET /livez", "200", "alive\n"),
        ("GET /readyz", "200", "ready\nstate: ok\nmedium: ok\n"),
        ("GET /readyz?exclude=state", "200", "ready\nmedium: ok\n"),
        ("GET /readyz?odd", "400", "/readyz takes exclude=state and exclude=medium only\n"),
        ("HEAD /readyz", "200", ""),
        ("POST /livez", "405", "method not allowed\n"),
    ] {
        let answer = ask(&format!("{request} HTTP/1.1\r\n"), b"");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, text, "{request}");
        assert!(status != "200" || head.contains("cache-control: no-store"), "{head}");
    }
}

#[test]
fn prometheus_reads_metrics_with_a_token_and_nobody_without() {
    let scrape = |fields: &str| ask(&format!("GET /metrics HTTP/1.1\r\n{fields}"), b"");
    for fields in ["", "Authorization: Bearer wrong\r\n"] {
        let refused = scrape(fields);
        assert!(
            refused.starts_with("HTTP/1.1 401 ") && refused.contains("www-authenticate: Bearer"),
            "{refused}"
        );
        assert!(!refused.contains("nqrust_http"), "{refused}");
    }
    let initrd = ask("HEAD /medium/release.json HTTP/1.1\r\n", b"");
    assert!(initrd.starts_with("HTTP/1.1 200 "), "{initrd}");
    let body = ask("GET /medium/release.json HTTP/1.1\r\n", b"");
    let length = body.split_once("\r\n\r\n").unwrap().1.len() as u64;
    let text = scrape("Authorization: Bearer T-secret\r\n");
    let (head, text) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    let value = |series: &str| -> u64 {
        let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("{series} in {text}")).parse().unwrap()
    };
    let of = |method| {
        value(&format!(r#"nqrust_http_requests_total{{route="medium",method="{method}",code="200"}}"#))
    };
    assert!(of("GET") >= 1 && of("HEAD") >= 1);
    // Other tests of this server take files, too.
    assert!(value(r#"nqrust_http_sent_bytes_total{route="medium"}"#) >= length);
    assert!(value(r#"nqrust_http_request_duration_seconds_count{route="medium"}"#) >= 2);
    assert!(value(r#"nqrust_http_requests_total{route="metrics",method="GET",code="401"}"#) >= 2);
    assert!(value("nqrust_http_connections") >= 1);
    assert_eq!((value("nqrust_state_up"), value("nqrust_configurations")), (1, 2));
    assert!(text.contains(r#"nqrust_release_info{name="NQRust Hypervisor",version="1.0"} 1"#), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("nqrust_machines{")).count(), 18);
    let open = "Authorization: Bearer T-secret\r\nAccept: application/openmetrics-text; version=1.0.0\r\n";
    assert!(scrape(open).ends_with("# EOF\n"));
}
