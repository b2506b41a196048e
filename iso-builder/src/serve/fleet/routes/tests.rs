use super::*;
use crate::serve::machines::{State, Tokens};
use installer::fleet::wire::{Failed, Hello, Line, Node};
use installer::progress;
use uuid::Uuid;

const NOW: Moment = Moment(1_700_000_000);
const TOKEN: &str = "T-secret";
/// With what the machine opens its configuration, and where it reports.
const CONFIGURATION: &str = "cccccccccccccccccccccccccccccccc";
const REPORTS: &str = "/v1/report/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// A fleet with one machine that was told to boot and may report.
fn fleet() -> (tempfile::TempDir, Known, MachineId) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let id = store.change(|machines| {
        let identity = Identity { serial: Some("CZ12".into()), ..Identity::default() };
        let machine = machines.seen(&identity, NOW);
        machine.apply(Event::Booted, NOW);
        let (configuration, report) =
            (Digest::of(CONFIGURATION.as_bytes()), Digest::of(&REPORTS.as_bytes()[REPORT.len()..]));
        machine.tokens = Some(Tokens { configuration, report, until: NOW.plus(60), used: false });
        machine.apply(Event::Took, NOW);
        machine.id
    });
    let id = id.unwrap();
    (directory, Known { fleet: Fleet::new(&Secret::new(TOKEN), false), store }, id)
}

/// A fleet and its machines.
struct Known {
    fleet: Fleet,
    store: Store,
}

impl Known {
    fn answer(&self, request: &Request<'_>, now: Moment) -> Result<Reply> {
        let known = super::Known { store: &self.store, fits: &|_| Fit::Own };
        self.fleet.answer(request, known, now)
    }
}

fn get<'a>(path: &'a str) -> Request<'a> {
    Request { method: "GET", path, authorization: Some("Bearer T-secret"), ..Request::default() }
}

fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    reply.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}

fn body(lines: &[Line]) -> Vec<u8> {
    let hello = Hello { v: 1, run: Uuid::nil(), machine: Identity::default(), hostname: None, product: None };
    let lines = [Line::Hello(hello)].into_iter().chain(lines.iter().cloned());
    lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect::<String>().into_bytes()
}

fn end(exit_code: u8) -> Line {
    let (time, step, message) = ("2026-11-21T10:00:00Z".into(), "run".into(), "over".into());
    let state = progress::State::Done;
    let (bytes, total, result, exit_code) = (None, None, None, Some(exit_code));
    Line::Event(progress::Event { v: 1, seq: 1, time, step, state, bytes, total, message, result, exit_code })
}

fn report<'a>(path: &'a str, body: &'a [u8]) -> Request<'a> {
    Request { method: "POST", path, body, ..Request::default() }
}

#[test]
fn nothing_of_the_fleet_is_shown_without_the_token() {
    let (_directory, fleet, id) = fleet();
    let machine = format!("/fleet/machines/{id}");
    let (live, log) = (format!("{machine}/live"), format!("{machine}/log"));
    for path in ["/fleet", "/fleet/live", "/v1/fleet", "/fleet/x", &machine, &live, &log] {
        for request in [
            Request { authorization: None, ..get(path) },
            Request { authorization: Some("Bearer wrong"), query: "token=wrong", ..get(path) },
            Request { authorization: None, cookie: Some("nqrust-fleet=T-secret"), ..get(path) },
            Request { method: "HEAD", authorization: None, ..get(path) },
        ] {
            let reply = fleet.answer(&request, NOW).unwrap();
            let text = String::from_utf8(reply.body).unwrap();
            assert_eq!(reply.status, 401, "{path}");
            assert!(!text.contains("CZ12") && !text.contains(&id.to_string()), "{path}: {text}");
        }
    }
    assert_eq!(fleet.answer(&get(&machine), NOW).unwrap().status, 200);
}

#[test]
fn the_token_in_the_address_becomes_a_cookie_and_leaves_the_address() {
    let (_directory, fleet, _) = fleet();
    let request = Request { authorization: None, query: "token=T-secret", ..get("/fleet") };
    let reply = fleet.answer(&request, NOW).unwrap();
    assert_eq!((reply.status, header(&reply, "Location")), (303, Some("/fleet")));
    let cookie = header(&reply, "Set-Cookie").unwrap().split(';').next().unwrap();
    let request = Request { authorization: None, cookie: Some(cookie), ..get("/fleet") };
    let reply = fleet.answer(&request, NOW).unwrap();
    assert_eq!(reply.status, 200);
    assert!(header(&reply, "Content-Security-Policy").unwrap().starts_with("default-src 'none'"));
    assert_eq!(header(&reply, "Cache-Control"), Some("no-store"));
    assert!(!String::from_utf8(reply.body).unwrap().contains(TOKEN));
}

#[test]
fn a_page_that_has_not_changed_is_not_sent_again() {
    let (_directory, fleet, _) = fleet();
    let reply = fleet.answer(&get("/fleet/live"), NOW).unwrap();
    let tag = header(&reply, "ETag").unwrap();
    let again = Request { if_none_match: Some(tag), ..get("/fleet/live") };
    let reply = fleet.answer(&again, NOW).unwrap();
    assert_eq!((reply.status, reply.body.len()), (304, 0));
    assert_eq!(fleet.answer(&again, NOW.plus(3)).unwrap().status, 200, "three seconds more is news");
    let style = fleet.answer(&Request { authorization: None, ..get("/fleet/style.css") }, NOW).unwrap();
    assert_eq!((style.status, header(&style, "Content-Type")), (200, Some("text/css; charset=utf-8")));
}

#[test]
fn what_a_machine_reports_decides_whether_it_boots_the_installer_again() {
    for (code, state) in [(0, State::Installed), (6, State::Failed)] {
        let (_directory, fleet, id) = fleet();
        let failed =
            Line::Failure(Failed { causes: vec!["no <disk>".into()], hints: vec![], exit_code: code });
        let told = body(&[end(code), failed, Line::Log("the <log>".into())]);
        for _ in 0..2 {
            assert_eq!(fleet.answer(&report(REPORTS, &told), NOW.plus(5)).unwrap().status, 204);
        }
        let known = fleet.store.read(|machines| machines.get(id).unwrap().clone());
        assert_eq!((known.state, known.since), (state, NOW.plus(5)));
        let log = fleet.answer(&get(&format!("/fleet/machines/{id}/log")), NOW).unwrap();
        assert_eq!((log.body.as_slice(), header(&log, "Content-Type")), (&b"the <log>"[..], Some(TEXT)));
        let page = fleet.answer(&get(&format!("/fleet/machines/{id}")), NOW.plus(5)).unwrap();
        let page = String::from_utf8(page.body).unwrap();
        assert!(page.contains("the &lt;log&gt;"), "{page}");
        assert_eq!(page.contains("no &lt;disk&gt;"), code != 0);
    }
}

#[test]
fn a_node_that_tells_that_it_is_ready_has_joined_and_stays_so() {
    let (_directory, fleet, id) = fleet();
    let node = |ready| Line::Node(Node { ready, stage: "ready".into(), ..Node::default() });
    let state = || fleet.store.read(|machines| machines.get(id).unwrap().state);
    // A server that was started again has not heard the end of the install.
    for (line, expected) in [
        (node(false), State::Installed),
        (node(true), State::Joined),
        (node(false), State::Joined),
        (end(0), State::Joined),
    ] {
        assert_eq!(fleet.answer(&report(REPORTS, &body(&[line])), NOW).unwrap().status, 204);
        assert_eq!(state(), expected);
    }
    let strange = Line::Node(Node { detail: "\u{1b}[2J".into(), ..Node::default() });
    assert_eq!(fleet.answer(&report(REPORTS, &body(&[strange])), NOW).unwrap().status, 400);
}

#[test]
fn a_report_without_its_token_or_of_another_form_changes_nothing() {
    let (_directory, fleet, id) = fleet();
    let good = body(&[end(0)]);
    for (path, body, status) in [
        (&*format!("/v1/report/{CONFIGURATION}"), &*good, 403),
        ("/v1/report/", &good, 403),
        (&format!("{REPORTS}/"), &good, 403),
        (REPORTS, b"", 400),
        (REPORTS, b"\xff", 400),
    ] {
        assert_eq!(fleet.answer(&report(path, body), NOW).unwrap().status, status, "{path}");
    }
    assert_eq!(fleet.store.read(|machines| machines.get(id).unwrap().state), State::Installing);
    assert_eq!(fleet.answer(&get(REPORTS), NOW).unwrap().status, 404);
}

#[test]
fn actions_take_the_cookie_and_a_form_of_this_server_or_the_token() {
    let (_directory, fleet, id) = fleet();
    let access = Access::new(&Secret::new(TOKEN));
    let cookie = access.set_cookie(false);
    let cookie = cookie.split(';').next();
    let form = format!("form={}", access.form_value());
    let path = format!("/fleet/machines/{id}/redeploy");
    let post = |authorization, cookie, body| Request {
        method: "POST",
        path: &path,
        authorization,
        cookie,
        body,
        ..Request::default()
    };
    for (request, status) in [
        (post(None, None, form.as_bytes()), 401),
        (post(None, cookie, b""), 403),
        (post(None, cookie, b"form=wrong"), 403),
    ] {
        assert_eq!(fleet.answer(&request, NOW).unwrap().status, status);
        assert_eq!(fleet.store.read(|machines| machines.get(id).unwrap().state), State::Installing);
    }
    let reply = fleet.answer(&post(None, cookie, form.as_bytes()), NOW).unwrap();
    assert_eq!((reply.status, header(&reply, "Location")), (303, Some(&*format!("/fleet#m-{id}"))));
    assert_eq!(fleet.store.read(|machines| machines.get(id).unwrap().state), State::Redeploy);
    for (verb, permission) in [("deny", Permission::Denied), ("allow", Permission::Allowed)] {
        let path = format!("/fleet/machines/{id}/{verb}");
        let request = Request { method: "POST", path: &path, ..get("") };
        assert_eq!(fleet.answer(&Request { path: &path, ..request }, NOW).unwrap().status, 303);
        assert_eq!(fleet.store.read(|machines| machines.get(id).unwrap().permission), permission);
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let (_directory, fleet, id) = fleet();
    let (log, odd) = (format!("/fleet/machines/{id}/log"), format!("/fleet/machines/{id}/odd"));
    let nobody = format!("/fleet/machines/{}", MachineId::random());
    for path in ["/fleet/", "/fleet/machines/", "/fleet/machines/../..", "/v1/fleet/x", &log, &odd, &nobody] {
        assert_eq!(fleet.answer(&get(path), NOW).unwrap().status, 404, "{path}");
        assert_eq!(
            fleet.answer(&Request { method: "POST", ..get(path) }, NOW).unwrap().status,
            404,
            "{path}"
        );
    }
    assert_eq!(fleet.answer(&Request { method: "PUT", ..get("/fleet") }, NOW).unwrap().status, 405);
    for (path, ours) in [
        ("/fleet", true),
        ("/fleet/x", true),
        ("/fleets", false),
        ("/v1/fleet", true),
        ("/v1/report/x", true),
        ("/v1/boot", false),
    ] {
        assert_eq!(Fleet::has(path), ours, "{path}");
    }
}
