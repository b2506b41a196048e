//! Runs that report to a server on the loopback interface.

use std::time::{Duration, Instant};

use super::*;
use base::progress::StepState;
use model::config::parse;
use model::fleet;
use testing::progress::Recorder;
use testing::reports::{ReportServer, ServerReaction};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn quick() -> OutboxPolicy {
    OutboxPolicy {
        timeout: millis(2000),
        rate: millis(20),
        pause: millis(10),
        longest_pause: millis(20),
        flush: millis(20_000),
        ..policy()
    }
}

fn run_with(server: &ReportServer, policy: OutboxPolicy) -> (Reporter, Progress, Recorder) {
    let recorder = Recorder::default();
    let progress = Progress::new(vec![Box::new(recorder.clone())]);
    let url = format!("{}/v1/report/MARK-token", server.url).parse().unwrap();
    let machine = Identity { serial: Some("CZ12".into()), ..Identity::default() };
    let reporter = Reporter::begin(ReporterSetup { url, machine, policy, progress: progress.clone() });
    (reporter, progress, recorder)
}

fn run(server: &ReportServer) -> (Reporter, Progress, Recorder) {
    run_with(server, quick())
}

/// The lines of each request that came.
fn requests(server: &ReportServer) -> Vec<Vec<ReportLine>> {
    let lines = |request: &String| {
        let body = request.split_once("\r\n\r\n").unwrap().1;
        body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    server.requests().iter().map(lines).collect()
}

/// All events that came, without repetition, as step and state.
fn events(server: &ReportServer) -> Vec<(String, StepState)> {
    let mut events: Vec<_> = requests(server)
        .into_iter()
        .flatten()
        .filter_map(|line| match line {
            ReportLine::Event(event) => Some((event.seq, (event.step, event.state))),
            _ => None,
        })
        .collect();
    events.sort_by_key(|(seq, _)| *seq);
    events.dedup_by_key(|(seq, _)| *seq);
    events.into_iter().map(|(_, event)| event).collect()
}

fn warnings(recorder: &Recorder) -> Vec<String> {
    let events = recorder.0.lock().unwrap();
    events.iter().filter(|event| event.step == "report").map(|event| event.message.clone()).collect()
}

#[test]
fn every_request_says_who_speaks_and_all_events_come_in_order() {
    let server = ReportServer::new(&[ServerReaction::Status(204)]);
    let (reporter, progress, recorder) = run(&server);
    progress.step("preflight", "Checking the machine", None).done();
    reporter.hostname(Some("node-1"));
    reporter.product("Product 1");
    progress.step("image", "Writing", Some(5)).done();
    reporter.fall_silent();
    progress.finish("Installation complete", 0);
    reporter.conclude(None);
    let requests = requests(&server);
    let hellos: Vec<_> = requests
        .iter()
        .map(|lines| match &lines[0] {
            ReportLine::Hello(hello) => hello.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    let last = hellos.last().unwrap();
    assert!(
        hellos.iter().all(|hello| hello.run == last.run && hello.machine.serial.as_deref() == Some("CZ12"))
    );
    assert_eq!((last.hostname.as_deref(), last.product.as_deref()), (Some("node-1"), Some("Product 1")));
    let expected = [
        ("preflight", StepState::Started),
        ("preflight", StepState::Done),
        ("image", StepState::Started),
        ("image", StepState::Done),
        ("run", StepState::Done),
    ];
    assert_eq!(events(&server), expected.map(|(step, state)| (step.to_owned(), state)));
    assert!(server.requests()[0].contains("content-type: application/x-ndjson\r\n"));
    assert!(warnings(&recorder).is_empty());
}

#[test]
fn a_failure_comes_with_its_log_and_without_secrets() {
    let server = ReportServer::new(&[ServerReaction::Status(204)]);
    let (reporter, progress, _) = run(&server);
    let mut secrets = Secrets::default();
    secrets.add(&parse("token: MARK-cluster", "f").unwrap());
    secrets.add_texts(["v1/report/MARK-token"]);
    reporter.hide(&secrets);
    drop(progress.step("wipe", "erasing for MARK-cluster", None));
    progress.finish("Installation failed", 6);
    let failed = RunFailure {
        causes: vec!["\u{1b}disk vda, MARK-cluster".into()],
        hints: vec!["Replace MARK-cluster.".into()],
        exit_code: 6,
    };
    let log = format!(
        "dropped\n{}MARK-cluster {}/v1/report/MARK-token\n",
        "x\n".repeat(fleet::LOG / 2),
        server.url
    );
    reporter.conclude(Some((failed, log)));
    let told: String =
        server.requests().iter().map(|r| r.split_once("\r\n\r\n").unwrap().1.to_owned()).collect();
    assert!(!told.contains("MARK") && !told.contains("dropped"), "{}", &told[..2000]);
    let lines: Vec<_> = requests(&server).into_iter().flatten().collect();
    let failed = lines.iter().find_map(|line| match line {
        ReportLine::Failure(failed) => Some(failed.clone()),
        _ => None,
    });
    let failed = failed.unwrap();
    assert_eq!((failed.causes.concat().as_str(), failed.exit_code), ("\u{fffd}disk vda, [hidden]", 6));
    assert!(
        matches!(lines.last(), Some(ReportLine::Log(log)) if log.ends_with(&format!("[hidden] {}/[hidden]\n", server.url)))
    );
}

#[test]
fn what_a_server_misses_it_is_told_again() {
    let server = ReportServer::new(&[
        ServerReaction::Close,
        ServerReaction::Status(503),
        ServerReaction::Status(500),
        ServerReaction::Status(429),
        ServerReaction::Status(200),
    ]);
    let (reporter, progress, recorder) = run(&server);
    progress.step("preflight", "", None).done();
    // The warning comes after the third failure, and a run that has ended is told nothing.
    while warnings(&recorder).is_empty() {
        std::thread::sleep(millis(5));
    }
    reporter.conclude(None);
    let told = events(&server);
    assert_eq!(told[..2], [("preflight".into(), StepState::Started), ("preflight".into(), StepState::Done)]);
    let [warning] = &warnings(&recorder)[..] else { panic!("{:?}", warnings(&recorder)) };
    let expected = format!("warning: reporting to {}: the server answered 500", server.url);
    assert!(warning.starts_with(&expected) && !warning.contains("MARK"), "{warning}");
}

#[test]
fn a_server_that_does_not_want_to_know_is_asked_once() {
    for status in [403, 404, 302, 400] {
        let server = ReportServer::new(&[ServerReaction::Status(status)]);
        let (reporter, progress, recorder) = run(&server);
        progress.step("preflight", "", None).done();
        while warnings(&recorder).is_empty() {
            std::thread::sleep(millis(5));
        }
        progress.step("image", "", None).done();
        reporter.conclude(Some((RunFailure::default(), String::new())));
        assert_eq!(server.paths(), ["/v1/report/MARK-token"], "{status}");
    }
}

/// What a run that waits has heard of the creator once `requests` were answered and `is_heard` holds.
fn creator_status(
    server: &ReportServer,
    reporter: &Reporter,
    requests: usize,
    is_heard: impl Fn(&Option<String>) -> bool,
) -> Option<String> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let heard = reporter.wait_for_creator();
        // A request is only made after the answer to the one before.
        if server.requests().len() > requests && is_heard(&heard) || Instant::now() > until {
            return heard;
        }
        std::thread::sleep(millis(5));
    }
}

#[test]
fn a_run_that_waits_hears_of_the_creator_until_the_server_has_nothing_to_say() {
    let failed = r#"{"v":1,"text":"dc1-0 has failed: I/O\u001b[2J\n error. Start it.","more":{}}"#;
    let server = ReportServer::new(&[
        ServerReaction::Json(failed),
        ServerReaction::Status(503),
        ServerReaction::Json(failed),
        ServerReaction::Status(204),
    ]);
    let (reporter, _, _) = run(&server);
    let heard = creator_status(&server, &reporter, 1, Option::is_some);
    assert_eq!(heard.as_deref(), Some("dc1-0 has failed: I/O\u{fffd}[2J error. Start it."));
    assert_eq!(creator_status(&server, &reporter, 4, Option::is_none), None);
    assert!(requests(&server).iter().all(|lines| lines.contains(&ReportLine::Wait {})));
}

#[test]
fn an_answer_that_is_none_of_this_version_says_nothing_of_the_creator() {
    for answer in [
        ServerReaction::Status(204),
        ServerReaction::Status(200),
        ServerReaction::Json(r#"{"v":2,"text":"x"}"#),
        ServerReaction::Json(r#"{"v":1,"text":""}"#),
        ServerReaction::Json(r#"{"v":1}"#),
        ServerReaction::Json("<html>"),
    ] {
        let server = ReportServer::new(&[answer]);
        let (reporter, _, _) = run(&server);
        assert_eq!(creator_status(&server, &reporter, 1, |_| true), None, "{answer:?}");
    }
}

#[test]
fn a_server_that_hangs_holds_up_neither_the_run_nor_its_end() {
    let server = ReportServer::new(&[ServerReaction::Hang]);
    let policy = OutboxPolicy { timeout: Duration::from_secs(600), flush: millis(300), ..quick() };
    let begun = Instant::now();
    let (reporter, progress, recorder) = run_with(&server, policy);
    for _ in 0..500 {
        progress.step("image", "Writing", Some(9)).done();
    }
    reporter.fall_silent();
    progress.finish("Installation complete", 0);
    reporter.conclude(None);
    // Far less than the server hangs, on a busy machine too.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(warnings(&recorder).is_empty());
}

#[test]
fn nothing_is_told_to_the_consoles_after_the_last_event() {
    let server = ReportServer::new(&[ServerReaction::Status(403)]);
    let (reporter, progress, recorder) = run(&server);
    reporter.fall_silent();
    progress.finish("Installation complete", 0);
    reporter.conclude(None);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(recorder.0.lock().unwrap().last().unwrap().step, "run");
}

#[test]
fn the_url_comes_from_the_command_line_of_the_program_or_of_the_kernel() {
    let url = |given, line| destination(given, line).unwrap().map(|url| url.as_str().to_owned());
    assert_eq!(url(None, "quiet nqrust.reports=x"), None);
    assert_eq!(url(None, "a nqrust.report=http://a/b nqrust.mode=install").as_deref(), Some("http://a/b"));
    assert_eq!(url(Some("https://c/d"), "nqrust.report=http://a/b").as_deref(), Some("https://c/d"));
    for (given, line) in [
        (None, "nqrust.report"),
        (None, "nqrust.report=ftp://MARK-secret"),
        (None, "nqrust.report=http://a/MARK nqrust.report=http://a/b"),
        (Some("MARK"), ""),
    ] {
        let error = destination(given, line).unwrap_err();
        assert_eq!(base::failure::class_of(&error), Class::Invalid);
        assert!(!base::failure::render(&error).contains("MARK"), "{error:#}");
    }
}

#[test]
fn what_may_be_a_token_in_kernel_parameters_is_known() {
    let line = "nqrust.install.config_url=http://a/v1/config/T1?x nqrust.report=https://a:8/v1/report/T2 \
                nqrust.install.medium=http://a/medium/ nqrust.report=http://a/short nqrust.report=x";
    assert_eq!(tokens(line), ["v1/config/T1?x", "v1/report/T2"]);
}
