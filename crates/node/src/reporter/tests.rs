//! Nodes that report to a server on the loopback interface.

use std::os::unix::fs::PermissionsExt;

use super::*;
use base::files;
use model::fleet::ReportLine;
use model::machine::Identity;
use uuid::Uuid;

use testing::reports::{ReportServer, ServerReaction};

/// What an install leaves on a node that reports to `server`; and its run.
fn node_of(server: &ReportServer) -> (tempfile::TempDir, Uuid) {
    let url = format!("{}/v1/report/MARK-token", server.url).parse().unwrap();
    let (machine, progress) = (Identity::default(), Progress::silent());
    let setup = ReporterSetup { url, machine, policy: policy(), progress };
    let reporter = Reporter::begin(setup);
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("oem")).unwrap();
    let kept = reporter.kept().unwrap();
    assert!(!format!("{kept:?}").contains("MARK"));
    let file = root.path().join("oem/fleet.json");
    files::write_atomically(&file, kept.expose().as_bytes(), 0o600).unwrap();
    let run = Handover::read(&file).unwrap().run;
    (root, run)
}

fn reporter_of(root: &Path, flush: Duration) -> Option<NodeReporter> {
    let millis = Duration::from_millis;
    let mut secrets = Secrets::default();
    secrets.add_texts(["MARK-cluster"]);
    let about = ReportedNode { hostname: Some("node-1"), product: "Product 1".into(), secrets: &secrets };
    let policy = OutboxPolicy {
        timeout: millis(2000),
        rate: millis(5),
        pause: millis(5),
        longest_pause: millis(20),
        flush,
        ..policy()
    };
    NodeReporter::read(root, &about, &Progress::silent(), policy).unwrap()
}

fn stages(state: StageState, detail: &str) -> Vec<Stage> {
    let stage = |name, state, detail: &str| Stage {
        name,
        state,
        since: None,
        detail: detail.into(),
        next: Some("Do it.".into()),
    };
    vec![stage(StageName::Network, StageState::Done, "an address"), stage(StageName::Ready, state, detail)]
}

/// The reports about the node, with their runs.
fn told(server: &ReportServer) -> Vec<(Uuid, NodeReport)> {
    let mut told = Vec::new();
    for request in server.requests() {
        assert!(!request.split_once("\r\n\r\n").unwrap().1.contains("MARK"), "{request}");
        let mut run = Uuid::nil();
        for line in request.split_once("\r\n\r\n").unwrap().1.lines() {
            match serde_json::from_str(line).unwrap() {
                ReportLine::Hello(hello) => {
                    assert_eq!(hello.hostname.as_deref(), Some("node-1"));
                    run = hello.run;
                }
                ReportLine::Node(node) => told.push((run, node)),
                other => panic!("{other:?}"),
            }
        }
    }
    told
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_node_goes_on_with_the_story_of_its_install_until_it_is_ready() {
    let server = ReportServer::new(&[ServerReaction::Status(204)]);
    let (root, run) = node_of(&server);
    let file = root.path().join("oem/fleet.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut reporter = reporter_of(root.path(), LONG).unwrap();
    for _ in 0..3 {
        reporter.tell(&stages(StageState::Failed, "refused: MARK-cluster"));
    }
    while told(&server).is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    reporter.tell(&stages(StageState::Done, "the cluster has begun"));
    reporter.conclude().unwrap();
    let failed = NodeReport {
        ready: false,
        failed: true,
        stage: "ready".into(),
        detail: "refused: [hidden]".into(),
        next: Some("Do it.".into()),
    };
    let ready = NodeReport {
        ready: true,
        stage: "ready".into(),
        detail: "the cluster has begun".into(),
        ..NodeReport::default()
    };
    assert_eq!(told(&server), [(run, failed), (run, ready)]);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        NodeReporter::read(
            root.path(),
            &ReportedNode { hostname: None, product: String::new(), secrets: &Secrets::default() },
            &Progress::silent(),
            policy()
        )
        .unwrap()
        .is_none()
    );
}

#[test]
fn a_node_speaks_again_after_its_next_start_where_its_server_was_away() {
    let server = ReportServer::new(&[ServerReaction::Close]);
    let (root, _) = node_of(&server);
    let mut first = reporter_of(root.path(), Duration::from_millis(50)).unwrap();
    first.tell(&stages(StageState::Done, "ready"));
    first.conclude().unwrap();
    assert!(reporter_of(root.path(), LONG).is_some());
    // A node that has not become ready has more to report.
    let server = ReportServer::new(&[ServerReaction::Status(204)]);
    let (root, _) = node_of(&server);
    let mut waiting = reporter_of(root.path(), LONG).unwrap();
    waiting.tell(&stages(StageState::Waiting, "not yet"));
    waiting.conclude().unwrap();
    assert_eq!(told(&server).len(), 1);
    assert!(reporter_of(root.path(), LONG).is_some());
}

#[test]
fn what_becomes_of_an_update_is_told_for_good_and_without_secrets() {
    let server = ReportServer::new(&[ServerReaction::Status(204)]);
    let (root, run) = node_of(&server);
    let mut joining = reporter_of(root.path(), LONG).unwrap();
    joining.tell(&stages(StageState::Done, "ready"));
    joining.conclude().unwrap();
    let mut secrets = Secrets::default();
    secrets.add_texts(["MARK-cluster"]);
    let about = ReportedNode { hostname: Some("node-1"), product: "Product 1".into(), secrets: &secrets };
    let update = UpdateReport {
        state: "rolled-back".into(),
        reason: Some("own-required: MARK-cluster".into()),
        trust: Some("signed by MARK-cluster".into()),
        warnings: vec!["MARK-cluster".into()],
        ..UpdateReport::default()
    };
    for _ in 0..2 {
        tell_update(root.path(), &about, update.clone(), &Progress::silent()).unwrap();
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests[1..] {
        let lines: Vec<ReportLine> = request
            .split_once("\r\n\r\n")
            .unwrap()
            .1
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let [ReportLine::Hello(hello), ReportLine::Update(told)] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((hello.run, told.reason.as_deref()), (run, Some("own-required: [hidden]")));
        let origin = (told.trust.as_deref(), &told.warnings[..]);
        assert_eq!(origin, (Some("signed by [hidden]"), &["[hidden]".to_owned()][..]));
    }
    // Without a server there is nobody to tell, and one that wants no more is not asked again.
    let refusing = ReportServer::new(&[ServerReaction::Status(403)]);
    let (root, _) = node_of(&refusing);
    for _ in 0..2 {
        tell_update(root.path(), &about, update.clone(), &Progress::silent()).unwrap();
    }
    assert_eq!(refusing.requests().len(), 1);
}

#[test]
fn a_server_that_has_begun_another_deployment_is_left_alone() {
    let server = ReportServer::new(&[ServerReaction::Status(403)]);
    let (root, _) = node_of(&server);
    let mut speaker = reporter_of(root.path(), LONG).unwrap();
    speaker.tell(&stages(StageState::Waiting, "not yet"));
    speaker.conclude().unwrap();
    assert!(reporter_of(root.path(), LONG).is_none());
}

#[test]
fn a_file_that_is_none_of_ours_is_named_without_its_content() {
    let about = ReportedNode { hostname: None, product: String::new(), secrets: &Secrets::default() };
    for text in [
        "MARK",
        "{}",
        r#"{"v": 1, "url": "ftp://MARK", "run": "00000000-0000-0000-0000-000000000000", "authorities": []}"#,
        r#"{"v": 2, "url": "http://MARK", "run": "00000000-0000-0000-0000-000000000000", "authorities": []}"#,
    ] {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("oem")).unwrap();
        std::fs::write(root.path().join("oem/fleet.json"), text).unwrap();
        let error = NodeReporter::of_node(root.path(), &about, &Progress::silent()).unwrap_err();
        let shown = format!("{error:#}");
        assert!(shown.contains("oem/fleet.json") && !shown.contains("MARK"), "{shown}");
    }
}
