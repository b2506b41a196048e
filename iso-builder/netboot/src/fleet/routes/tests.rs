use super::*;
use crate::machines::access_token::TokenRole;
use crate::machines::machine::{DeploymentState, InstallPermission, Machine};
use crate::test_support::{configurations, operator, told};
use base::progress;
use model::fleet::{NodeReport, ReportLine, RunFailure, SlotReport, UpdateReport};
use model::machine::Identity;
use uuid::Uuid;

pub(super) const NOW: Moment = Moment(1_700_000_000);
pub(super) const TOKEN: &str = "T-secret";
const NAME: &str = "serial-CZ12.yaml";

/// A fleet with one machine that has taken its configuration.
pub(super) fn fleet() -> (tempfile::TempDir, FleetSources, MachineId) {
    let directory = tempfile::tempdir().unwrap();
    let store = crate::test_support::registry(directory.path());
    let configurations = configurations(&[NAME]);
    let mut known = FleetSources {
        fleet: Fleet::new(&Secret::new(TOKEN), false),
        store,
        configurations,
        reports: String::new(),
    };
    let (configuration, reports) = known.boot();
    known.take(&configuration);
    known.reports = reports;
    let id = known.machine().id;
    (directory, known, id)
}

pub(super) struct FleetSources {
    pub(super) fleet: Fleet,
    pub(super) store: MachineRegistry,
    pub(super) configurations: Configurations,
    /// The path for the machine's reports.
    pub(super) reports: String,
}

impl FleetSources {
    pub(super) fn answer(&self, request: &FleetRequest<'_>, now: Moment) -> Result<FleetReply> {
        let known =
            super::FleetSources { store: &self.store, configurations: &self.configurations, note: &|_| {} };
        self.fleet.answer(request, known, now)
    }

    /// Tells the machine to install. Returns the token for its configuration and the path for its reports.
    fn boot(&self) -> (String, String) {
        let peer = [192, 0, 2, 1].into();
        let booted = self.store.boot(&told("serial=CZ12"), peer, &self.configurations, NOW).unwrap();
        let (configuration, report) = booted.tokens.unwrap();
        (configuration.expose().to_owned(), format!("{REPORT}{}", report.expose()))
    }

    fn take(&self, token: &str) {
        let peer = [192, 0, 2, 1].into();
        self.store.take(token, peer, &self.configurations, 60, NOW).unwrap().unwrap();
    }

    pub(super) fn machine(&self) -> Machine {
        self.store.list(1).unwrap().0.pop().unwrap()
    }

    /// The id of the machine with this serial number.
    pub(super) fn machine_named(&self, serial: &str) -> MachineId {
        let machines = self.store.list(usize::MAX).unwrap().0;
        machines.into_iter().find(|one| one.identity.serial.as_deref() == Some(serial)).unwrap().id
    }

    fn state(&self) -> DeploymentState {
        self.machine().state
    }
}

pub(super) fn get<'a>(path: &'a str) -> FleetRequest<'a> {
    FleetRequest { method: "GET", path, authorization: Some("Bearer T-secret"), ..FleetRequest::default() }
}

pub(super) fn header<'a>(reply: &'a FleetReply, name: &str) -> Option<&'a str> {
    reply.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
}

pub(super) fn body(lines: &[ReportLine]) -> Vec<u8> {
    let hello =
        StreamHeader { v: 1, run: Uuid::nil(), machine: Identity::default(), hostname: None, product: None };
    let lines = [ReportLine::Hello(hello)].into_iter().chain(lines.iter().cloned());
    lines.map(|line| serde_json::to_string(&line).unwrap() + "\n").collect::<String>().into_bytes()
}

pub(super) fn started() -> progress::Event {
    match end(0) {
        ReportLine::Event(event) => progress::Event { state: progress::StepState::Started, ..event },
        other => panic!("{other:?}"),
    }
}

pub(super) fn end(exit_code: u8) -> ReportLine {
    let (time, step, message) = ("2026-11-21T10:00:00Z".into(), "run".into(), "over".into());
    let state = progress::StepState::Done;
    let (bytes, total, result, exit_code) = (None, None, None, Some(exit_code));
    ReportLine::Event(progress::Event {
        v: 1,
        seq: 1,
        time,
        step,
        state,
        bytes,
        total,
        message,
        details: None,
        result,
        part: None,
        exit_code,
    })
}

pub(super) fn report<'a>(path: &'a str, body: &'a [u8]) -> FleetRequest<'a> {
    FleetRequest { method: "POST", path, body, ..FleetRequest::default() }
}

#[test]
fn nothing_of_the_fleet_is_shown_without_the_token() {
    let (_directory, fleet, id) = fleet();
    let machine = format!("/fleet/machines/{id}");
    let (live, log) = (format!("{machine}/live"), format!("{machine}/log"));
    for path in ["/fleet", "/fleet/live", "/v1/fleet", "/fleet/x", &machine, &live, &log] {
        for request in [
            FleetRequest { authorization: None, ..get(path) },
            FleetRequest { authorization: Some("Bearer wrong"), query: "token=wrong", ..get(path) },
            FleetRequest { authorization: None, cookie: Some("nqrust-fleet=T-secret"), ..get(path) },
            FleetRequest { method: "HEAD", authorization: None, ..get(path) },
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
    let request = FleetRequest { authorization: None, query: "token=T-secret", ..get("/fleet") };
    let reply = fleet.answer(&request, NOW).unwrap();
    assert_eq!((reply.status, header(&reply, "Location")), (303, Some("/fleet")));
    let cookie = header(&reply, "Set-Cookie").unwrap().split(';').next().unwrap();
    let request = FleetRequest { authorization: None, cookie: Some(cookie), ..get("/fleet") };
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
    let again = FleetRequest { if_none_match: Some(tag), ..get("/fleet/live") };
    let reply = fleet.answer(&again, NOW).unwrap();
    assert_eq!((reply.status, reply.body.len()), (304, 0));
    assert_eq!(fleet.answer(&again, NOW.plus(3)).unwrap().status, 304, "the script counts the seconds");
    assert_eq!(fleet.answer(&again, NOW.plus(1000)).unwrap().status, 200, "it is silent now");
    let style = fleet.answer(&FleetRequest { authorization: None, ..get("/fleet/style.css") }, NOW).unwrap();
    assert_eq!((style.status, header(&style, "Content-Type")), (200, Some("text/css; charset=utf-8")));
}

#[test]
fn what_a_machine_reports_decides_whether_it_boots_the_installer_again() {
    for (code, state) in [(0, DeploymentState::Installed), (6, DeploymentState::Failed)] {
        let (_directory, fleet, id) = fleet();
        let failed = ReportLine::Failure(RunFailure {
            causes: vec!["no <disk>".into()],
            hints: vec![],
            exit_code: code,
        });
        let told = body(&[end(code), failed, ReportLine::Log("the <log>".into())]);
        for _ in 0..2 {
            assert_eq!(fleet.answer(&report(&fleet.reports, &told), NOW.plus(5)).unwrap().status, 204);
        }
        let known = fleet.store.get(id).unwrap().unwrap();
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
    let (_directory, fleet, _) = fleet();
    let node = |ready| ReportLine::Node(NodeReport { ready, stage: "ready".into(), ..NodeReport::default() });
    // A restarted server has not received the end of the install.
    for (line, expected) in [
        (node(false), DeploymentState::Installed),
        (node(true), DeploymentState::Joined),
        (node(false), DeploymentState::Joined),
        (end(0), DeploymentState::Joined),
    ] {
        assert_eq!(fleet.answer(&report(&fleet.reports, &body(&[line])), NOW).unwrap().status, 204);
        assert_eq!(fleet.state(), expected);
    }
    let slots = vec![SlotReport::default(); 9];
    let strange = ReportLine::Update(UpdateReport { slots, ..UpdateReport::default() });
    assert_eq!(fleet.answer(&report(&fleet.reports, &body(&[strange])), NOW).unwrap().status, 400);
    for warnings in [vec![String::new(); 9], vec!["\u{1b}[2J".into()], vec!["x".repeat(4097)]] {
        let strange = ReportLine::Update(UpdateReport { warnings, ..UpdateReport::default() });
        assert_eq!(fleet.answer(&report(&fleet.reports, &body(&[strange])), NOW).unwrap().status, 400);
    }
    let strange = ReportLine::Node(NodeReport { detail: "\u{1b}[2J".into(), ..NodeReport::default() });
    assert_eq!(fleet.answer(&report(&fleet.reports, &body(&[strange])), NOW).unwrap().status, 400);
}

#[test]
fn a_report_without_its_token_or_of_another_form_changes_nothing() {
    let (_directory, fleet, _) = fleet();
    let good = body(&[end(0)]);
    let reports = &fleet.reports;
    for (path, body, status) in [
        (&*format!("/v1/report/{}", "0".repeat(70)), &*good, 403),
        ("/v1/report/", &good, 403),
        (&format!("{reports}/"), &good, 403),
        (reports, b"", 400),
        (reports, b"\xff", 400),
    ] {
        assert_eq!(fleet.answer(&report(path, body), NOW).unwrap().status, status, "{path}");
    }
    assert_eq!(fleet.state(), DeploymentState::Installing);
    assert_eq!(fleet.answer(&get(reports), NOW).unwrap().status, 404);
}

#[test]
fn who_has_not_taken_the_configuration_reports_and_changes_nothing() {
    let (_directory, fleet, id) = fleet();
    fleet.store.act(&[id.into()], OperatorAction::Redeploy, &operator(), &fleet.configurations, NOW).unwrap();
    let (_, before) = fleet.boot();
    let (configuration, after) = fleet.boot();
    for code in [6, 0] {
        assert_eq!(fleet.answer(&report(&before, &body(&[end(code)])), NOW).unwrap().status, 204);
        assert_eq!(fleet.state(), DeploymentState::Booting);
    }
    fleet.take(&configuration);
    for path in [&before, &fleet.reports] {
        assert_eq!(fleet.answer(&report(path, &body(&[end(6)])), NOW).unwrap().status, 403);
    }
    assert_eq!(fleet.state(), DeploymentState::Installing);
    assert_eq!(fleet.answer(&report(&after, &body(&[end(0)])), NOW).unwrap().status, 204);
    assert_eq!(fleet.state(), DeploymentState::Installed);
    let limit = |path: &str| fleet.fleet.body_limit(&report(path, b""), &fleet.store, NOW).unwrap().ok();
    assert_eq!((limit(&after), limit(&before)), (Some(BODY), None));
}

#[test]
fn a_conflict_is_shown_with_its_names_and_the_address_of_who_asked_until_it_is_dismissed() {
    let (_directory, mut fleet, _) = fleet();
    fleet.configurations = configurations(&[NAME, "asset-tag-rack3.yaml"]);
    let peer = [203, 0, 113, 7].into();
    fleet.store.boot(&told("serial=CZ12&asset=rack3"), peer, &fleet.configurations, NOW).unwrap();
    let page =
        |fleet: &FleetSources| String::from_utf8(fleet.answer(&get("/fleet"), NOW).unwrap().body).unwrap();
    let shown = page(&fleet);
    for text in ["<h3>203.0.113.7</h3>", NAME, "asset-tag-rack3.yaml", "Conflict"] {
        assert!(shown.contains(text), "{text} in {shown}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&fleet.answer(&get("/v1/fleet"), NOW).unwrap().body).unwrap();
    let conflict = &json["conflicts"][0];
    assert_eq!(conflict["address"], "203.0.113.7");
    assert_eq!(conflict["between"], serde_json::json!(["asset-tag-rack3.yaml", NAME]));
    assert_eq!(
        (&json["more"], &json["machines"][0]["clients"][0]["address"]),
        (&0.into(), &"192.0.2.1".into())
    );
    let path = format!("/fleet/conflicts/{}/dismiss", conflict["id"].as_str().unwrap());
    let post = FleetRequest { method: "POST", ..get(&path) };
    assert_eq!(fleet.answer(&FleetRequest { authorization: None, ..post }, NOW).unwrap().status, 401);
    assert!(page(&fleet).contains("203.0.113.7"));
    assert_eq!(fleet.answer(&post, NOW).unwrap().status, 303);
    assert!(!page(&fleet).contains("203.0.113.7"));
    assert_eq!(fleet.answer(&post, NOW).unwrap().status, 404);
}

#[test]
fn actions_take_the_cookie_and_a_form_of_this_server_or_the_token() {
    let (_directory, fleet, id) = fleet();
    let access = FleetAccess::new(&Secret::new(TOKEN));
    let visitor = access.holder(TOKEN, &fleet.store, NOW).unwrap().unwrap();
    let cookie = visitor.set_cookie(false);
    let cookie = cookie.split(';').next();
    let form = format!("form={}", visitor.form_value());
    let path = format!("/fleet/machines/{id}/redeploy");
    let post = |authorization, cookie, body| FleetRequest {
        method: "POST",
        path: &path,
        authorization,
        cookie,
        body,
        ..FleetRequest::default()
    };
    for (request, status) in [
        (post(None, None, form.as_bytes()), 401),
        (post(None, cookie, b""), 403),
        (post(None, cookie, b"form=wrong"), 403),
    ] {
        assert_eq!(fleet.answer(&request, NOW).unwrap().status, status);
        assert_eq!(fleet.state(), DeploymentState::Installing);
    }
    let reply = fleet.answer(&post(None, cookie, form.as_bytes()), NOW).unwrap();
    assert_eq!((reply.status, header(&reply, "Location")), (303, Some(&*format!("/fleet#m-{id}"))));
    assert_eq!(fleet.state(), DeploymentState::Redeploy);
    for (verb, permission) in [("deny", InstallPermission::Denied), ("allow", InstallPermission::Allowed)] {
        let path = format!("/fleet/machines/{id}/{verb}");
        let request = FleetRequest { method: "POST", path: &path, ..get("") };
        assert_eq!(fleet.answer(&FleetRequest { path: &path, ..request }, NOW).unwrap().status, 303);
        assert_eq!(fleet.machine().permission, permission);
    }
    let path = format!("/fleet/machines/{id}/forget");
    let forget = FleetRequest { method: "POST", path: &path, ..get("") };
    assert_eq!(fleet.answer(&forget, NOW).unwrap().status, 303);
    assert_eq!(fleet.answer(&forget, NOW).unwrap().status, 404);
}

#[test]
fn who_may_only_look_sees_everything_and_acts_on_nothing() {
    let (_directory, fleet, id) = fleet();
    let both = told("serial=CZ12&asset=A");
    let named = configurations(&["asset-tag-A.yaml", NAME]);
    let answer = fleet.store.boot(&both, [203, 0, 113, 7].into(), &named, NOW).unwrap();
    assert!(!answer.conflict.is_empty());
    let token =
        fleet.store.make_token("display".parse().unwrap(), TokenRole::Read, None, None, &operator(), NOW);
    let token = token.unwrap().unwrap().text;
    let bearer = format!("Bearer {}", token.expose());
    let looks = |path| FleetRequest { authorization: Some(&bearer), ..get(path) };
    let machine = format!("/fleet/machines/{id}");
    for path in ["/fleet", &machine] {
        let shown =
            |request| String::from_utf8(fleet.answer(&request, NOW.plus(1000)).unwrap().body).unwrap();
        let (whole, part) = (shown(get(path)), shown(looks(path)));
        assert!(whole.contains("CZ12") && whole.contains("<form method=\"post\""), "{whole}");
        assert!(part.contains("CZ12") && !part.contains("<form method=\"post\""), "{part}");
    }
    let actions = |request: FleetRequest<'_>| {
        let reply = fleet.answer(&request, NOW.plus(1000)).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        let rows = json["machines"].as_array().unwrap().clone();
        rows.iter().map(|row| row["actions"].as_array().unwrap().len()).sum::<usize>()
    };
    // One after the other: what one is shown is no change for the other.
    for _ in 0..2 {
        assert!(actions(get(JSON)) > 0);
        assert_eq!(actions(looks(JSON)), 0);
    }
    let actions = [
        format!("{machine}/redeploy"),
        bulk::PLAN.into(),
        bulk::CONFIRM.into(),
        "/fleet/conflicts/x/dismiss".into(),
    ];
    for path in &actions {
        let request = FleetRequest { method: "POST", accept: Some("application/json"), ..looks(path) };
        let limit = fleet.fleet.body_limit(&request, &fleet.store, NOW).unwrap();
        for reply in [limit.unwrap_err(), fleet.answer(&request, NOW).unwrap()] {
            let text = String::from_utf8(reply.body).unwrap();
            assert!(
                reply.status == 403 && text.contains("the token display has the role read"),
                "{path}: {text}"
            );
        }
    }
    assert_eq!(fleet.state(), DeploymentState::Installing);
    assert_eq!(fleet.store.audit(audit::read("").unwrap()).unwrap().len(), 1, "the token that was made");
}

#[test]
fn what_operators_do_is_in_the_audit_log_page_by_page() {
    let (_directory, fleet, id) = fleet();
    let act = |verb: &str| {
        let path = format!("/fleet/machines/{id}/{verb}");
        let peer = Some([192, 0, 2, 9].into());
        fleet
            .answer(&FleetRequest { method: "POST", path: &path, peer, ..get("") }, NOW.plus(5))
            .unwrap()
            .status
    };
    assert_eq!((act("forget"), act("redeploy"), act("deny")), (409, 303, 303));
    let ask = |query: &str| -> serde_json::Value {
        let reply = fleet.answer(&FleetRequest { query, ..get(AUDIT) }, NOW).unwrap();
        assert_eq!(reply.status, 200, "{query}");
        serde_json::from_slice(&reply.body).unwrap()
    };
    let told = |json: &serde_json::Value| -> Vec<String> {
        let entries = json["entries"].as_array().unwrap().iter();
        entries.map(|entry| format!("{} {}", entry["action"], entry["result"]).replace('"', "")).collect()
    };
    let all = ask("");
    assert_eq!(told(&all), ["deny done", "redeploy done", "forget refused"]);
    assert!(all["next"].is_null());
    let last = &all["entries"][0];
    let actor = serde_json::json!({
        "kind": "token", "name": "fleet-url", "role": "operate", "address": "192.0.2.9"
    });
    assert_eq!((&last["actor"], &last["time"]), (&actor, &serde_json::json!(NOW.plus(5).to_string())));
    assert_eq!(last["machine"], serde_json::json!({ "id": id.to_string(), "name": NAME }));
    let first = ask("limit=2");
    assert_eq!(told(&first), ["deny done", "redeploy done"]);
    let second = ask(&format!("limit=2&before={}", first["next"]));
    assert_eq!(
        (told(&second), &second["next"]),
        (vec!["forget refused".to_owned()], &serde_json::Value::Null)
    );
    assert_eq!(told(&ask(&format!("machine={id}&limit=1"))), ["deny done"]);
    assert!(told(&ask(&format!("machine={}", MachineId::random()))).is_empty());
    for (query, authorization, status) in [("limit=0", Some("Bearer T-secret"), 400), ("", None, 401)] {
        let reply = fleet.answer(&FleetRequest { query, authorization, ..get(AUDIT) }, NOW).unwrap();
        assert_eq!(reply.status, status);
        assert!(serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap()["error"].is_string());
    }
}

#[test]
fn a_program_that_accepts_json_is_told_what_came_of_its_action() {
    let (_directory, fleet, id) = fleet();
    let answer = |verb: &str, authorization, accept| {
        let path = format!("/fleet/machines/{id}/{verb}");
        let request = FleetRequest { method: "POST", path: &path, authorization, accept, ..get("") };
        let reply = fleet.answer(&request, NOW).unwrap();
        let json = serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap_or_default();
        (reply.status, json)
    };
    let token = Some("Bearer T-secret");
    let program = Some("text/plain, application/json;q=0.9");
    let result = |action: &str, result: &str| serde_json::json!({"v": 1, "action": action, "machine": id.to_string(), "result": result});
    let (status, json) = answer("forget", token, program);
    assert!(
        status == 409 && json["error"].as_str().unwrap().contains("redeploy or allow it first"),
        "{json}"
    );
    assert_eq!(answer("redeploy", token, program), (200, result("redeploy", "done")));
    assert_eq!(answer("deny", token, program), (200, result("deny", "done")));
    assert_eq!(answer("allow", token, program), (200, result("allow", "done")));
    assert_eq!(answer("forget", token, program), (200, result("forget", "removed")));
    for (verb, authorization, status) in [("forget", token, 404), ("odd", token, 404), ("allow", None, 401)] {
        let (found, json) = answer(verb, authorization, program);
        assert!(found == status && json["error"].is_string(), "{verb}: {found} {json}");
    }
    let browser = Some("text/html,application/xhtml+xml,*/*;q=0.8");
    assert_eq!(answer("forget", token, browser), (404, serde_json::Value::Null));
}

#[test]
fn a_program_gets_the_machines_that_its_query_asks_for() {
    let (_directory, fleet, _) = fleet();
    let ask = |query| {
        let reply = fleet.answer(&FleetRequest { query, ..get("/v1/fleet") }, NOW).unwrap();
        (reply.status, serde_json::from_slice::<serde_json::Value>(&reply.body).unwrap())
    };
    for (query, count) in [
        ("", 1),
        ("stage=preparing", 1),
        ("stage=failed&stage=preparing", 1),
        ("stage=failed", 0),
        ("group=installing&text=cz12", 1),
        ("group=installing&text=cz13", 0),
        ("name=cz12", 1),
        ("name=cz1", 0),
        ("text=serial-%43Z", 1),
        ("text=192.0.2.1", 1),
    ] {
        let (status, json) = ask(query);
        assert_eq!((status, json["machines"].as_array().unwrap().len()), (200, count), "{query}");
        assert_eq!(json["summary"][0]["count"], 1, "the summary is of the whole fleet");
    }
    for (query, word) in [
        ("stage=odd", "waiting-for-cluster"),
        ("group=odd", "installing"),
        ("role=odd", "witness"),
        ("x=1", "x is not"),
    ] {
        let (status, json) = ask(query);
        assert!(status == 400 && json["error"].as_str().unwrap().contains(word), "{query}: {json}");
    }
}

#[test]
fn an_unchanged_fleet_is_not_sent_again_however_large_and_however_late() {
    const MACHINES: usize = 1800;
    let (_directory, fleet, _) = fleet();
    let peer = [192, 0, 2, 1].into();
    let names: Vec<_> = (1..MACHINES).map(|number| format!("serial-N{number}.yaml")).collect();
    let known = configurations(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for number in 1..MACHINES {
        fleet.store.boot(&told(&format!("serial=N{number}")), peer, &known, NOW).unwrap();
    }
    let whole = fleet.answer(&get("/v1/fleet"), NOW.plus(1)).unwrap();
    let tag = header(&whole, "ETag").unwrap();
    let again = FleetRequest { if_none_match: Some(tag), ..get("/v1/fleet") };
    let reply = fleet.answer(&again, NOW.plus(30)).unwrap();
    assert!(whole.body.len() > 1_000_000, "{}", whole.body.len());
    assert_eq!((reply.status, reply.body.len()), (304, 0));
    let one = fleet.answer(&FleetRequest { query: "name=N1799", ..get("/v1/fleet") }, NOW.plus(30)).unwrap();
    assert!(one.body.len() < 10_000, "{}", one.body.len());
    fleet.answer(&report(&fleet.reports, &body(&[end(6)])), NOW.plus(31)).unwrap();
    assert_eq!(fleet.answer(&again, NOW.plus(31)).unwrap().status, 200);
}

/// A fleet of 1,800 machines, of which one installs.
pub(super) fn large() -> (tempfile::TempDir, FleetSources) {
    let (directory, mut fleet, _) = fleet();
    let names: Vec<_> = (1..1800).map(|number| format!("serial-N{number}.yaml")).collect();
    fleet.configurations =
        configurations(&[NAME].into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>());
    for number in 1..1800 {
        let peer = [192, 0, 2, 1].into();
        fleet.store.boot(&told(&format!("serial=N{number}")), peer, &fleet.configurations, NOW).unwrap();
    }
    (directory, fleet)
}

#[test]
fn a_program_that_has_the_list_gets_the_machines_that_have_changed_alone() {
    let (_directory, fleet) = large();
    let ask = |query: &str, now| {
        let reply = fleet.answer(&FleetRequest { query, ..get("/v1/fleet") }, now).unwrap();
        assert_eq!(reply.status, 200, "{query}");
        let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        (reply.body.len(), json)
    };
    let names = |json: &serde_json::Value| -> Vec<String> {
        json["machines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let since = |json: &serde_json::Value| format!("since={}", json["version"].as_str().unwrap());
    let (all, whole) = ask("", NOW.plus(1));
    assert!(names(&whole).len() == 1800 && whole["since"].is_null(), "{all}");
    // Nothing but the time.
    let (nothing, json) = ask(&since(&whole), NOW.plus(60));
    assert_eq!((names(&json).len(), &json["version"]), (0, &whole["version"]));
    // One that reports.
    let wipe = ReportLine::Event(progress::Event { step: "wipe".into(), exit_code: None, ..started() });
    fleet.answer(&report(&fleet.reports, &body(&[wipe])), NOW.plus(61)).unwrap();
    let (one, json) = ask(&since(&whole), NOW.plus(62));
    assert_eq!((names(&json), &json["since"]), (vec!["CZ12".to_owned()], &whole["version"]));
    assert!(json.get("summary").is_none() && json.get("not_heard_of").is_none(), "they are the same: {json}");
    assert!(all > 1_000_000 && nothing < 300 && one < 3000, "{all} {nothing} {one}");
    // That it is heard of again is none.
    fleet.answer(&report(&fleet.reports, &body(&[])), NOW.plus(63)).unwrap();
    let (_, again) = ask(&since(&json), NOW.plus(64));
    assert_eq!((names(&again).len(), &again["version"]), (0, &json["version"]));
    // A change before takes the same way, and a filter tells of those that it no longer lists.
    let (_, json) = ask(&format!("stage=preparing&{}", since(&whole)), NOW.plus(65));
    assert_eq!((names(&json).len(), json["removed"].as_array().unwrap().len()), (0, 1));
    let (_, json) = ask(&format!("stage=disks&{}", since(&whole)), NOW.plus(65));
    assert_eq!((names(&json), json["removed"].as_array().unwrap().len()), (vec!["CZ12".to_owned()], 0));
}

#[test]
fn an_open_page_gets_the_machines_that_have_changed_and_the_places_of_the_others() {
    let (_directory, fleet) = large();
    let ask = |query: &str, tag, now| {
        let request = FleetRequest { query, if_none_match: tag, ..get("/fleet/live") };
        let reply = fleet.answer(&request, now).unwrap();
        let tag = header(&reply, "ETag").unwrap().to_owned();
        (reply.status, String::from_utf8(reply.body).unwrap(), tag)
    };
    let cards = |page: &str| page.matches(" class=\"machine").count();
    let ids = |page: &str| -> Vec<String> {
        page.split("<li id=\"m-").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    let (_, whole, tag) = ask("", None, NOW.plus(1));
    assert_eq!((cards(&whole), whole.contains("data-same")), (100, false));
    assert!(whole.contains("1–100 of 1800 machines"), "{whole}");
    // The page has the version with which the script begins.
    let page = String::from_utf8(fleet.answer(&get("/fleet"), NOW.plus(1)).unwrap().body).unwrap();
    let version = tag.strip_prefix("W/\"").and_then(|tag| tag.strip_suffix('"')).unwrap();
    assert!(page.contains(&format!("data-version=\"{version}\"")), "{tag} {page}");
    let since = format!("since={version}");
    // The age of everything is another, and nothing is sent.
    assert_eq!(ask(&since, Some(&tag), NOW.plus(60)).0, 304);
    let wipe = ReportLine::Event(progress::Event { step: "wipe".into(), exit_code: None, ..started() });
    fleet.answer(&report(&fleet.reports, &body(&[wipe])), NOW.plus(61)).unwrap();
    let (status, part, _) = ask(&since, Some(&tag), NOW.plus(62));
    assert_eq!((status, cards(&part)), (200, 1), "{part}");
    assert!(part.contains("Installing <span>1800, 100 on this page</span>"), "{part}");
    assert_eq!(ids(&part), ids(&whole), "every machine has its place");
    assert!(whole.len() > 100_000 && part.len() < 20_000, "{} {}", whole.len(), part.len());
    // With a filter that it does not match any more, it leaves the page.
    let (_, part, _) = ask(&format!("stage=booting&{since}"), None, NOW.plus(62));
    assert_eq!((cards(&part), ids(&part).len()), (0, 100));
    assert!(!ids(&part).contains(&fleet.machine_named("CZ12").to_string()), "{part}");
}

/// The names of the machines on a page, in order.
fn names(page: &str) -> Vec<&str> {
    page.split("<h3>")
        .skip(1)
        .map(|rest| rest.split("<bdi>").nth(1).unwrap().split('<').next().unwrap())
        .collect()
}

#[test]
fn every_machine_is_on_one_page_of_a_list_and_a_page_after_the_last_is_the_last() {
    let (_directory, fleet) = large();
    let page = |query: &str| {
        let reply = fleet.answer(&FleetRequest { query, ..get("/fleet") }, NOW.plus(1)).unwrap();
        assert_eq!(reply.status, 200, "{query}");
        String::from_utf8(reply.body).unwrap()
    };
    let mut all = Vec::new();
    for number in 1..=4 {
        let html = page(&format!("size=500&sort=name&page={number}"));
        let marked = format!("aria-current=\"page\"><span class=\"unseen\">Page </span>{number}</a>");
        assert!(html.contains(&marked), "{html}");
        all.extend(names(&html).into_iter().map(str::to_owned));
    }
    let numbers: Vec<u32> =
        all.iter().skip(1).map(|name| name.trim_start_matches('N').parse().unwrap()).collect();
    assert_eq!((all.len(), all[0].as_str()), (1800, "CZ12"));
    assert_eq!(numbers, (1..1800).collect::<Vec<_>>(), "by their numbers");
    assert_eq!(names(&page("size=500&sort=name&page=99")), names(&page("size=500&sort=name&page=4")));
    // Links keep what the query has.
    let html = page("text=N&size=25&sort=name&page=2");
    for link in
        ["/fleet?text=n&amp;sort=name&amp;size=25\"", "/fleet?text=n&amp;sort=name&amp;size=25&amp;page=3\""]
    {
        assert!(html.contains(link), "{link} in {html}");
    }
    assert!(html.contains("26–50 of 1799 machines match"), "{html}");
}

#[test]
fn a_program_gets_the_list_in_parts_and_misses_no_machine() {
    let (_directory, fleet) = large();
    let ask = |query: &str| -> serde_json::Value {
        let reply = fleet.answer(&FleetRequest { query, ..get("/v1/fleet") }, NOW.plus(1)).unwrap();
        assert_eq!(reply.status, 200, "{query}");
        serde_json::from_slice(&reply.body).unwrap()
    };
    let ids = |json: &serde_json::Value| -> Vec<String> {
        json["machines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = ask("limit=700");
    assert_eq!((ids(&first).len(), &first["more"]), (700, &1100.into()));
    let mut all = ids(&first);
    // One of those that were listed goes, and nothing of the rest moves.
    let gone: MachineId = all[9].parse().unwrap();
    fleet
        .store
        .act(&[gone.into()], OperatorAction::Redeploy, &operator(), &Configurations::default(), NOW)
        .unwrap();
    let mut part = first.clone();
    while let Some(after) = part["next"].as_str() {
        part = ask(&format!("limit=700&after={after}"));
        all.extend(ids(&part));
    }
    let mut sorted = all.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((all.len(), &part["more"]), (1800, &0.into()));
    assert_eq!(all, sorted, "each once");
    // What has changed since the first part can be asked for in parts too.
    let since = first["version"].as_str().unwrap();
    let changes = ask(&format!("since={since}&limit=1"));
    assert_eq!((ids(&changes).len(), &changes["removed"]), (0, &serde_json::json!([all[9]])));
}

#[test]
fn the_page_lists_what_its_boxes_choose() {
    let (_directory, fleet, _) = fleet();
    let page = |query| {
        let reply = fleet.answer(&FleetRequest { query, ..get("/fleet") }, NOW).unwrap();
        (reply.status, String::from_utf8(reply.body).unwrap())
    };
    for (query, listed) in [
        ("", true),
        ("group=&stage=&role=&text=", true),
        ("group=installing&stage=preparing&role=&text=cz1", true),
        ("group=failed&stage=&role=&text=", false),
        ("role=worker", false),
        ("token=old&text=%3Cscript%3E", false),
        ("rack=-&cluster=-", true),
        ("rack=rack-1", false),
        ("cluster=192.0.2.10&by=rack", false),
    ] {
        let (status, page) = page(query);
        assert_eq!((status, page.contains("<li id=\"m-")), (200, listed), "{query}");
        assert_eq!(page.contains("No machine matches the filter."), !listed, "{query}");
        assert!(
            page.contains("</svg><strong>1</strong> installing"),
            "the summary is of the whole fleet: {page}"
        );
        assert!(!page.contains("<script>"), "{page}");
    }
    let (_, shown) = page("group=installing&stage=preparing&text=cz1");
    for part in [
        r#"<option value="installing" selected>"#,
        r#"<option value="preparing" selected>"#,
        r#"name="text" value="cz1""#,
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let (status, page) = page("stage=odd");
    assert!(status == 400 && page.contains("odd is not a stage"), "{page}");
}

#[test]
fn a_version_that_this_server_does_not_know_gets_everything() {
    let (_directory, fleet, id) = fleet();
    let ask = |query: &str| -> serde_json::Value {
        let reply = fleet.answer(&FleetRequest { query, ..get("/v1/fleet") }, NOW).unwrap();
        serde_json::from_slice(&reply.body).unwrap()
    };
    let whole = ask("");
    let version = whole["version"].as_str().unwrap();
    let (epoch, number) = version.split_once('-').unwrap();
    for since in [
        "",
        "x",
        "0123456789abcdef-1",
        epoch,
        &format!("{epoch}-99"),
        &format!("{epoch}-x"),
        &format!("{epoch}{number}"),
    ] {
        let json = ask(&format!("since={since}"));
        assert_eq!(
            (&json["since"], json["machines"].as_array().unwrap().len()),
            (&serde_json::Value::Null, 1),
            "{since}"
        );
        assert!(json["summary"].is_array() && json["notices"].is_array(), "{json}");
    }
    // Machines that are gone are named until they come again.
    fleet.store.act(&[id.into()], OperatorAction::Redeploy, &operator(), &fleet.configurations, NOW).unwrap();
    fleet.store.act(&[id.into()], OperatorAction::Forget, &operator(), &fleet.configurations, NOW).unwrap();
    let json = ask(&format!("since={version}"));
    assert_eq!(json["removed"], serde_json::json!([id.to_string()]));
    assert_eq!((json["machines"].as_array().unwrap().len(), &json["summary"]), (0, &serde_json::json!([])));
    assert_eq!(ask("")["removed"], serde_json::json!([]));
}

#[test]
fn a_machine_that_has_its_configuration_cannot_be_forgotten() {
    let (_directory, fleet, id) = fleet();
    let path = format!("/fleet/machines/{id}/forget");
    let forget = FleetRequest { method: "POST", path: &path, ..get("") };
    assert_eq!(fleet.answer(&forget, NOW).unwrap().status, 409);
    assert_eq!(fleet.state(), DeploymentState::Installing);
}

#[test]
fn what_is_not_there_is_not_found() {
    let (_directory, fleet, id) = fleet();
    let (log, odd) = (format!("/fleet/machines/{id}/log"), format!("/fleet/machines/{id}/odd"));
    let nobody = format!("/fleet/machines/{}", MachineId::random());
    for path in ["/fleet/", "/fleet/machines/", "/fleet/machines/../..", "/v1/fleet/x", &log, &odd, &nobody] {
        assert_eq!(fleet.answer(&get(path), NOW).unwrap().status, 404, "{path}");
        assert_eq!(
            fleet.answer(&FleetRequest { method: "POST", ..get(path) }, NOW).unwrap().status,
            404,
            "{path}"
        );
    }
    assert_eq!(fleet.answer(&FleetRequest { method: "PUT", ..get("/fleet") }, NOW).unwrap().status, 405);
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

#[test]
fn what_is_kept_of_the_machines_is_what_would_be_made_anew() {
    let (_directory, mut fleet) = large();
    let compare = |fleet: &FleetSources, seconds: u64| {
        let now = NOW.plus(seconds);
        let view = |shown: &Fleet| {
            let known = super::FleetSources {
                store: &fleet.store,
                configurations: &fleet.configurations,
                note: &|_| {},
            };
            shown.view(known, now).unwrap()
        };
        let anew = view(&Fleet::new(&Secret::new(TOKEN), false));
        assert_eq!(view(&fleet.fleet), anew, "after {seconds} seconds");
        anew.summary.iter().map(|count| (count.group.name(), count.count)).collect::<Vec<_>>()
    };
    let event =
        |step: &str| ReportLine::Event(progress::Event { step: step.into(), exit_code: None, ..started() });
    let tell = |fleet: &FleetSources, line: ReportLine, seconds| {
        fleet.answer(&report(&fleet.reports, &body(&[line])), NOW.plus(seconds)).unwrap();
    };
    let silent = |fleet: &FleetSources, seconds: u64| {
        let known =
            super::FleetSources { store: &fleet.store, configurations: &fleet.configurations, note: &|_| {} };
        fleet.fleet.view(known, NOW.plus(seconds)).unwrap().machines.iter().filter(|row| row.silent).count()
    };
    assert_eq!(compare(&fleet, 0), [("installing", 1800)]);
    tell(&fleet, event("image"), 1);
    compare(&fleet, 1);
    // It falls silent, and then all others do.
    for (seconds, count) in [(121, 0), (122, 1), (900, 1), (901, 1800)] {
        compare(&fleet, seconds);
        assert_eq!(silent(&fleet, seconds), count, "{seconds}");
    }
    let ReportLine::Event(ended) = end(0) else { panic!() };
    tell(&fleet, ReportLine::Event(progress::Event { seq: 2, ..ended }), 950);
    compare(&fleet, 950);
    // A restart counts as installed after three minutes.
    assert_eq!(compare(&fleet, 1129), [("installing", 1800)]);
    assert_eq!(compare(&fleet, 1130), [("installing", 1799), ("installed", 1)]);
    // The clock is set back.
    assert_eq!(compare(&fleet, 1000), [("installing", 1800)]);
    let id = fleet.machine_named("N7");
    fleet.store.act(&[id.into()], OperatorAction::Deny, &operator(), &fleet.configurations, NOW).unwrap();
    assert_eq!(compare(&fleet, 1131), [("installing", 1798), ("installed", 1), ("denied", 1)]);
    // Other configurations: those without any are unknown, or held by what they have begun.
    fleet.configurations = configurations(&[NAME, "default.yaml"]);
    compare(&fleet, 1131);
    fleet.store.act(&[id.into()], OperatorAction::Forget, &operator(), &fleet.configurations, NOW).unwrap();
    fleet.store.act(&[id.into()], OperatorAction::Allow, &operator(), &fleet.configurations, NOW).unwrap();
    fleet.store.act(&[id.into()], OperatorAction::Forget, &operator(), &fleet.configurations, NOW).unwrap();
    assert_eq!(compare(&fleet, 1131), [("installing", 1798), ("installed", 1)]);
}

/// The schema of the answer to a request of the API with this status.
fn described(document: &serde_json::Value, template: &str, method: &str, status: u16) -> serde_json::Value {
    let response = &document["paths"][template][method]["responses"][status.to_string()];
    assert!(response.is_object(), "{method} {template} is not described with {status}");
    response["content"]["application/json"]["schema"].clone()
}

#[test]
fn the_answers_are_those_of_the_openapi_document() {
    let (_directory, mut fleet, id) = fleet();
    let open = fleet.answer(&FleetRequest { authorization: None, ..get(openapi::PATH) }, NOW).unwrap();
    assert_eq!(open.status, 200);
    let document: serde_json::Value = serde_json::from_slice(&open.body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    // A machine with everything that a report can tell of it, one that waits, and a conflict.
    let work = ReportLine::Event(progress::Event {
        bytes: Some(5),
        total: Some(10),
        step: "image".into(),
        ..started()
    });
    let slot = SlotReport { slot: "a".into(), state: Some("good".into()), version: Some("1".into()) };
    let update = ReportLine::Update(UpdateReport {
        state: "rolled-back".into(),
        running: "a".into(),
        slots: vec![slot],
        offered: Some("2".into()),
        reason: Some("it was not healthy".into()),
        trust: Some("signed by releases".into()),
        warnings: vec!["a warning".into()],
        ..UpdateReport::default()
    });
    let failure =
        RunFailure { causes: vec!["I/O error".into()], hints: vec!["Replace it.".into()], exit_code: 6 };
    let lines = [work, end(6), ReportLine::Failure(failure), ReportLine::Log("a log".into()), update];
    assert_eq!(fleet.answer(&report(&fleet.reports, &body(&lines)), NOW.plus(5)).unwrap().status, 204);
    let named = configurations(&["asset-tag-A.yaml", NAME]);
    fleet.store.boot(&told("serial=CZ12&asset=A"), [203, 0, 113, 7].into(), &named, NOW).unwrap();
    fleet.configurations = configurations(&[NAME, "serial-N9.yaml", "default.yaml"]);
    fleet
        .store
        .boot(&told("mac=52:54:00:00:00:77"), [192, 0, 2, 7].into(), &fleet.configurations, NOW)
        .unwrap();
    let other = fleet.store.list(usize::MAX).unwrap().0.into_iter().find(|one| one.id != id).unwrap().id;
    let conflict = fleet.store.list(0).unwrap().2.pop().unwrap().id;
    let read =
        fleet.store.make_token("display".parse().unwrap(), TokenRole::Read, None, None, &operator(), NOW);
    let read = format!("Bearer {}", read.unwrap().unwrap().text.expose());
    let machine = |id: MachineId, verb: &str| format!("/fleet/machines/{id}/{verb}");
    let (act, plan, confirm) = ("/fleet/machines/{id}/{action}", "/fleet/actions", "/fleet/actions/confirm");
    let (token, none) = (Some("Bearer T-secret"), None);
    let planned = format!("action=deny&machine={other}");
    let ask = |method, path: &str, query, authorization, form: &str| {
        let request = FleetRequest {
            method,
            path,
            query,
            authorization,
            accept: Some("application/json"),
            body: form.as_bytes(),
            ..FleetRequest::default()
        };
        fleet.answer(&request, NOW.plus(1000)).unwrap()
    };
    let seen: serde_json::Value =
        serde_json::from_slice(&ask("POST", plan, "", token, &planned).body).unwrap();
    let confirmed = format!("action=deny&seen={}", seen["seen"].as_str().unwrap().replace(' ', "+"));
    let mut statuses = std::collections::BTreeSet::new();
    for (template, method, path, query, authorization, form, status) in [
        (JSON, "GET", JSON.to_owned(), "", token, "", 200),
        (JSON, "GET", JSON.to_owned(), "limit=1", Some(&*read), "", 200),
        (JSON, "GET", JSON.to_owned(), "stage=odd", token, "", 400),
        (JSON, "GET", JSON.to_owned(), "", none, "", 401),
        (plan, "POST", plan.to_owned(), "", token, &*planned, 200),
        (plan, "POST", plan.to_owned(), "", token, "action=odd", 400),
        (plan, "POST", plan.to_owned(), "", none, "", 401),
        (plan, "POST", plan.to_owned(), "", Some(&*read), "", 403),
        (confirm, "POST", confirm.to_owned(), "", token, &*confirmed, 200),
        (confirm, "POST", confirm.to_owned(), "", token, "action=deny", 400),
        (act, "POST", machine(other, "allow"), "", token, "", 200),
        (act, "POST", machine(other, "allow"), "", none, "", 401),
        (act, "POST", machine(other, "allow"), "", Some(&*read), "", 403),
        (act, "POST", machine(MachineId::random(), "allow"), "", token, "", 404),
        (act, "POST", machine(other, "deny"), "", token, "", 200),
        (act, "POST", machine(other, "forget"), "", token, "", 409),
        (
            "/fleet/conflicts/{id}/dismiss",
            "POST",
            format!("/fleet/conflicts/{conflict}/dismiss"),
            "",
            token,
            "",
            200,
        ),
        (
            "/fleet/conflicts/{id}/dismiss",
            "POST",
            "/fleet/conflicts/x/dismiss".to_owned(),
            "",
            token,
            "",
            404,
        ),
        (AUDIT, "GET", AUDIT.to_owned(), "", Some(&*read), "", 200),
        (AUDIT, "GET", AUDIT.to_owned(), "limit=1", token, "", 200),
        (AUDIT, "GET", AUDIT.to_owned(), "limit=x", token, "", 400),
        (AUDIT, "GET", AUDIT.to_owned(), "", none, "", 401),
    ] {
        let reply = ask(method, &path, query, authorization, form);
        let text = String::from_utf8_lossy(&reply.body);
        assert_eq!(reply.status, status, "{method} {path}: {text}");
        let schema = described(&document, template, &method.to_lowercase(), status);
        let json = serde_json::from_slice(&reply.body).unwrap();
        let mistakes = testing::json_schema::mistakes(&json, &schema, &document);
        assert!(mistakes.is_empty(), "{method} {path}: {mistakes:#?} in {text}");
        statuses.insert((template, status));
    }
    assert!(statuses.len() > 15, "{statuses:?}");
    // What machines send is described, too.
    let line = &document["paths"]["/v1/report/{token}"]["post"]["requestBody"]["content"]["application/x-ndjson"]
        ["schema"];
    let wait = ReportLine::Wait {};
    let node = ReportLine::Node(NodeReport {
        stage: "ready".into(),
        next: Some("x".into()),
        ..NodeReport::default()
    });
    for sent in lines.iter().chain([&wait, &node]).map(|line| serde_json::to_value(line).unwrap()) {
        let mistakes = testing::json_schema::mistakes(&sent, line, &document);
        assert!(mistakes.is_empty(), "{mistakes:#?} in {sent}");
    }
    // A document that says something else is not taken.
    let mut wrong = document.clone();
    wrong["components"]["schemas"]["ErrorAnswer"]["properties"]["error"] =
        serde_json::json!({ "type": "integer" });
    let schema = described(&wrong, JSON, "get", 401);
    let closed = serde_json::json!({ "error": "x" });
    assert_eq!(testing::json_schema::mistakes(&closed, &schema, &wrong).len(), 1);
}
