//! Deliveries to a server on the loopback interface.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::*;
use model::config::parse;
use testing::progress::Recorder;
use testing::reports::{ReportServer, ServerReaction};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Limits in milliseconds; `flush` for the calls before the end and for those of the end.
fn quick(timeout: u64, pause: u64, flush: u64) -> OutboxPolicy {
    OutboxPolicy { timeout: millis(timeout), pause: millis(pause), flush: millis(flush), ..policy() }
}

/// A run with these webhooks, in JSON-like YAML; `URL` stands for the server.
fn run(hooks: &str, server: &ReportServer) -> (Hooks, Progress, Recorder) {
    run_with(hooks, server, quick(2000, 10, 5000))
}

fn run_with(hooks: &str, server: &ReportServer, policy: OutboxPolicy) -> (Hooks, Progress, Recorder) {
    let text = format!("install: {{webhooks: [{}]}}", hooks.replace("URL", &server.url));
    let recorder = Recorder::default();
    let progress = Progress::new(vec![Box::new(recorder.clone())]);
    let facts = WebhookFacts {
        hostname: "node-1".into(),
        mac: "52:54:00:00:00:01".into(),
        ipv4: "10.0.0.5".into(),
        ipv6: "fd00::5".into(),
    };
    let hooks = Hooks::new(WebhookSetup {
        hooks: parse(&text, "test").unwrap().install.webhooks,
        authorities: Vec::new(),
        policy,
        flush_end: policy.flush,
        facts: Box::new(move || facts.clone()),
        product: "Product 1".into(),
        progress: progress.clone(),
    });
    (hooks, progress, recorder)
}

fn warnings(recorder: &Recorder) -> Vec<String> {
    let events = recorder.0.lock().unwrap();
    events.iter().filter(|event| event.step == "webhook").map(|event| event.message.clone()).collect()
}

fn hook(event: &str, rest: &str) -> String {
    format!("{{event: {event}, method: POST, url: 'URL/{event}/{{{{.Step}}}}'{rest}}}")
}

#[test]
fn events_come_in_order_and_only_steps_of_the_plan_are_told() {
    let server = ReportServer::new(&[ServerReaction::Status(200)]);
    let all = ["STARTED", "STEP", "SUCCEEDED", "FAILED"].map(|event| hook(event, "")).join(", ");
    let (hooks, progress, recorder) = run(&all, &server);
    hooks.started();
    hooks.follow(&progress, ["wipe", "image"]);
    progress.step("wipe", "", None).done();
    progress.step("image", "", Some(5)).done();
    progress.step("read-back", "", Some(5)).done();
    hooks.conclude(None);
    assert_eq!(server.paths(), ["/STARTED/", "/STEP/wipe", "/STEP/image", "/SUCCEEDED/"]);
    progress.step("wipe", "", None).done();
    progress.finish("Installation complete", 0);
    std::thread::sleep(millis(100));
    assert_eq!(server.paths().len(), 4, "nothing is told after the end");
    assert!(warnings(&recorder).is_empty());
}

#[test]
fn a_failure_is_told_once_with_its_step_and_reason_escaped_for_json() {
    let server = ReportServer::new(&[ServerReaction::Status(204)]);
    let payload = r#", payload: '{"step": "{{.Step}}", "why": "{{ .Error }}", "on": {{.Hostname}}, "a": ["{{.MACAddr}} {{.IPAddrV4}} {{.IPAddrV6}}", {{.Event}}, {{.Product}}]}'"#;
    let all = [hook("FAILED", payload), hook("SUCCEEDED", "")].join(", ");
    let (hooks, progress, _) = run(&all, &server);
    hooks.follow(&progress, ["wipe"]);
    drop(progress.step("wipe", "", None));
    hooks.conclude(Some("disk \"vda\"\nis gone"));
    let [request] = &server.requests()[..] else { panic!("{:?}", server.requests()) };
    assert!(request.starts_with("POST /FAILED/wipe HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("content-type: application/json\r\n"), "{request}");
    let body: serde_json::Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    let expected = serde_json::json!({
        "step": "wipe", "why": "disk \"vda\"\nis gone", "on": "node-1",
        "a": ["52:54:00:00:00:01 10.0.0.5 fd00::5", "FAILED", "Product 1"],
    });
    assert_eq!(body, expected);
}

#[test]
fn headers_and_basic_auth_are_sent_and_never_told() {
    let server = ReportServer::new(&[ServerReaction::Status(500)]);
    let rest = ", headers: {X-Key: [MARK-one, MARK-two], Content-Type: [text/plain]}, payload: MARK-body, \
                basic_auth: {user: me, password: MARK-password}";
    let marked = hook("STARTED", rest).replace("/STARTED/", "/MARK-path/");
    let (hooks, _, recorder) = run(&marked, &server);
    hooks.started();
    hooks.conclude(None);
    let requests = server.requests();
    assert_eq!(requests.len(), 4, "a server that answers 5xx is tried four times");
    for request in &requests {
        for part in ["x-key: MARK-one\r\n", "x-key: MARK-two\r\n", "content-type: text/plain\r\n"] {
            assert!(request.contains(part), "{request}");
        }
        // "me:MARK-password" in base64.
        assert!(request.contains("authorization: Basic bWU6TUFSSy1wYXNzd29yZA==\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\nMARK-body"), "{request}");
    }
    let [warning] = &warnings(&recorder)[..] else { panic!("{:?}", warnings(&recorder)) };
    assert!(
        warning.starts_with(&format!("warning: webhook STARTED to {}: the server answered 500", server.url))
    );
    assert!(warning.ends_with("gave up after 4 attempts") && !warning.contains("MARK"), "{warning}");
}

#[test]
fn only_what_can_pass_is_tried_again() {
    for (manners, tries, good) in [
        (
            &[
                ServerReaction::Status(503),
                ServerReaction::Close,
                ServerReaction::Hang,
                ServerReaction::Status(200),
            ][..],
            4,
            true,
        ),
        (&[ServerReaction::Status(404)][..], 1, false),
        (&[ServerReaction::Status(302)][..], 1, true),
    ] {
        let server = ReportServer::new(manners);
        let (hooks, _, recorder) = run_with(&hook("SUCCEEDED", ""), &server, quick(300, 5, 5000));
        hooks.conclude(None);
        assert_eq!(server.paths(), vec!["/SUCCEEDED/"; tries], "{manners:?}");
        assert_eq!(warnings(&recorder).is_empty(), good, "{manners:?}: {:?}", warnings(&recorder));
    }
}

#[test]
fn a_server_that_is_busy_is_tried_again_after_the_time_that_it_asks_for() {
    for status in [408, 429, 503] {
        let server = ReportServer::new(&[
            ServerReaction::Busy(status, "1"),
            ServerReaction::Status(status),
            ServerReaction::Status(204),
        ]);
        let (hooks, _, recorder) = run(&hook("STARTED", ""), &server);
        let begun = Instant::now();
        hooks.started();
        while server.paths().len() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(30), "{status}: {:?}", server.paths());
            std::thread::sleep(millis(5));
        }
        // The pauses of this run are of milliseconds.
        assert!(begun.elapsed() >= millis(1000), "{status}: {:?}", begun.elapsed());
        hooks.conclude(None);
        assert_eq!(server.paths(), ["/STARTED/"; 3], "{status}");
        assert!(warnings(&recorder).is_empty(), "{status}: {:?}", warnings(&recorder));
    }
}

#[test]
fn only_the_calls_of_an_event_that_did_not_arrive_are_tried_again() {
    let (good, refusing) = (
        ReportServer::new(&[ServerReaction::Status(200)]),
        ReportServer::new(&[ServerReaction::Status(404)]),
    );
    let late =
        ReportServer::new(&[ServerReaction::Status(503), ServerReaction::Close, ServerReaction::Status(200)]);
    let event = |server: &ReportServer| hook("STARTED", "").replace("URL", &server.url);
    let all = [event(&good), event(&refusing), event(&late)].join(", ");
    let (hooks, _, recorder) = run(&all, &good);
    hooks.started();
    hooks.conclude(None);
    assert_eq!([&good, &refusing, &late].map(|server| server.paths().len()), [1, 1, 3]);
    let [warning] = &warnings(&recorder)[..] else { panic!("{:?}", warnings(&recorder)) };
    assert!(warning.contains(&refusing.url) && warning.contains("404"), "{warning}");
}

#[test]
fn a_server_that_hangs_holds_up_neither_the_install_nor_its_end_nor_other_hooks() {
    let (hanging, good) =
        (ReportServer::new(&[ServerReaction::Hang]), ReportServer::new(&[ServerReaction::Status(200)]));
    let all = ["STARTED", "STEP", "SUCCEEDED"].map(|event| hook(event, ""));
    let both = all.clone().map(|hook| hook.replace("URL", &good.url)).into_iter().chain(all);
    let (hooks, progress, recorder) =
        run_with(&both.collect::<Vec<_>>().join(", "), &hanging, quick(600_000, 10, 1500));
    let begun = Instant::now();
    hooks.started();
    hooks.follow(&progress, ["wipe"]);
    for _ in 0..200 {
        progress.step("wipe", "", None).done();
    }
    // Far less than the server hangs, on a busy machine too.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    hooks.conclude(None);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(good.paths(), ["/STARTED/", "/SUCCEEDED/"]);
    let warnings = warnings(&recorder);
    assert!(warnings.iter().any(|w| w.contains("no time was left to tell webhooks of")), "{warnings:?}");
    assert!(
        warnings.iter().any(|w| w.contains("SUCCEEDED") && w.ends_with("did not answer in time")),
        "{warnings:?}"
    );
}

#[test]
fn a_server_that_is_not_there_is_told_by_its_name_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let server = ReportServer { url: url.clone(), requests: Arc::default() };
    let (hooks, _, recorder) = run(&hook("FAILED", "").replace("/FAILED/", "/MARK/"), &server);
    hooks.conclude(Some("why"));
    let [warning] = &warnings(&recorder)[..] else { panic!("{:?}", warnings(&recorder)) };
    assert!(warning.contains(&url) && warning.contains("refused") && !warning.contains("MARK"), "{warning}");
}
