//! Actions on several machines.

use std::cell::RefCell;

use serde_json::Value;

use super::tests::{FleetSources, NOW, end, fleet, get, large, report};
use super::*;
use crate::machines::access_token::TokenRole;
use crate::machines::machine::InstallPermission;
use crate::test_support::{operator, told};

/// The answer to a form that a program sends.
fn post(fleet: &FleetSources, path: &str, form: &str) -> (u16, Value) {
    let accept = Some("application/json");
    let request = FleetRequest { method: "POST", path, accept, body: form.as_bytes(), ..get("") };
    let reply = fleet.answer(&request, NOW.plus(400)).unwrap();
    (reply.status, serde_json::from_slice(&reply.body).unwrap())
}

fn visitor(fleet: &FleetSources) -> FleetVisitor {
    fleet.fleet.access.holder("T-secret", &fleet.store, NOW).unwrap().unwrap()
}

/// The answer to a form that a browser sends, which has this value of `form`.
fn browse(fleet: &FleetSources, path: &str, value: &str, form: &str) -> (u16, String) {
    let cookie = visitor(fleet).set_cookie(false);
    let cookie = cookie.split(';').next();
    let form = format!("form={value}&{form}");
    let (authorization, body) = (None, form.as_bytes());
    let request = FleetRequest { method: "POST", path, authorization, cookie, body, ..get("") };
    let reply = fleet.answer(&request, NOW.plus(400)).unwrap();
    (reply.status, String::from_utf8(reply.body).unwrap())
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|machine| machine["name"].as_str().unwrap()).collect()
}

fn permissions(fleet: &FleetSources, permission: InstallPermission) -> usize {
    let machines = fleet.store.list(usize::MAX).unwrap().0;
    machines.iter().filter(|machine| machine.permission == permission).count()
}

/// The form that confirms a plan.
fn confirmation(plan: &Value) -> String {
    let count = plan["machines"].as_array().unwrap().len();
    format!(
        "action={}&count={count}&seen={}",
        plan["action"].as_str().unwrap(),
        plan["seen"].as_str().unwrap().replace(' ', "+")
    )
}

#[test]
fn a_plan_names_what_would_be_done_and_what_not_and_does_nothing() {
    let (_directory, fleet) = large();
    let (first, second, busy) =
        (fleet.machine_named("N1"), fleet.machine_named("N2"), fleet.machine_named("CZ12"));
    let gone = MachineId::random();
    let form =
        format!("action=deny&machine={first}&machine={second}&machine={first}&machine={busy}&machine={gone}");
    let (status, plan) = post(&fleet, bulk::PLAN, &form);
    assert_eq!((status, names(&plan["machines"])), (200, vec!["N1", "N2"]), "{plan}");
    let reasons: Vec<_> =
        plan["refused"].as_array().unwrap().iter().map(|one| one["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["it is not in the fleet any more", "its install has begun"], "{plan}");
    assert_eq!(permissions(&fleet, InstallPermission::Denied), 0);
    let (status, done) = post(&fleet, bulk::CONFIRM, &confirmation(&plan));
    assert_eq!(
        (status, names(&done["done"]), names(&done["refused"]).len()),
        (200, vec!["N1", "N2"], 0),
        "{done}"
    );
    assert_eq!(permissions(&fleet, InstallPermission::Denied), 2);
    // What is confirmed again was decided already.
    let (_, again) = post(&fleet, bulk::CONFIRM, &confirmation(&plan));
    assert_eq!((names(&again["done"]).len(), names(&again["refused"]).len()), (0, 2));
    assert_eq!(again["refused"][0]["reason"], "it has changed since it was shown: denied", "{again}");
}

#[test]
fn all_that_match_a_filter_are_acted_on_and_nothing_that_matches_later_or_has_changed() {
    let (_directory, fleet) = large();
    let (_, plan) = post(&fleet, bulk::PLAN, "action=deny&of=matching&query=group%3Dinstalling%26text%3Dn");
    assert_eq!((names(&plan["machines"]).len(), plan["refused"].as_array().unwrap().len()), (1799, 0));
    // One is denied, one is told to install again, and a new one comes.
    let (denied, gone) = (fleet.machine_named("N5"), fleet.machine_named("N6"));
    fleet.store.act(&[denied.into()], OperatorAction::Deny, &operator(), &fleet.configurations, NOW).unwrap();
    fleet
        .store
        .act(&[gone.into()], OperatorAction::Redeploy, &operator(), &Configurations::default(), NOW)
        .unwrap();
    let all = crate::test_support::configurations(&["serial-N1800.yaml"]);
    fleet.store.boot(&told("serial=N1800"), [192, 0, 2, 1].into(), &all, NOW).unwrap();
    let (status, done) = post(&fleet, bulk::CONFIRM, &confirmation(&plan));
    assert_eq!((status, names(&done["done"]).len(), names(&done["refused"]).len()), (200, 1797, 2));
    let reason = |id: MachineId| {
        let refused = done["refused"].as_array().unwrap().iter();
        refused.filter(|one| one["id"] == id.to_string()).map(|one| one["reason"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(reason(denied), ["it has changed since it was shown: denied"]);
    assert_eq!(reason(gone), ["it is not in the fleet any more"]);
    assert_eq!(permissions(&fleet, InstallPermission::Denied), 1798);
    assert_eq!(
        permissions(&fleet, InstallPermission::Unsaid),
        2,
        "the one that installs and the one that came"
    );
}

#[test]
fn a_machine_that_has_another_stage_than_the_confirmed_one_is_not_erased() {
    let (_directory, fleet, id) = fleet();
    fleet.answer(&report(&fleet.reports, &super::tests::body(&[end(0)])), NOW.plus(1)).unwrap();
    let (_, plan) = post(&fleet, bulk::PLAN, &format!("action=redeploy&machine={id}"));
    assert_eq!(names(&plan["machines"]), ["CZ12"], "{plan}");
    // Its node reports that it is ready: another stage than the one that was confirmed.
    let node = model::fleet::NodeReport { ready: true, stage: "ready".into(), ..Default::default() };
    let ready = super::tests::body(&[model::fleet::ReportLine::Node(node)]);
    fleet.answer(&report(&fleet.reports, &ready), NOW.plus(401)).unwrap();
    let form = confirmation(&plan);
    let (_, done) = post(&fleet, bulk::CONFIRM, &form);
    assert_eq!(done["refused"][0]["reason"], "it has changed since it was shown: joined", "{done}");
    assert_eq!(fleet.machine().state, DeploymentState::Joined);
}

#[test]
fn a_redeployment_of_several_machines_says_what_is_lost_and_needs_their_number() {
    let (_directory, fleet) = installed(3);
    let form = "action=redeploy&of=matching&query=";
    let value = visitor(&fleet).form_value().to_owned();
    let (status, page) = browse(&fleet, bulk::PLAN, &value, form);
    assert_eq!(status, 200);
    for part in [
        "<h1>Redeploy 3 machines?</h1>",
        "All data on their disks is lost",
        "pattern=\"3\" required",
        "<bdi>N1</bdi>",
        "Erase and install 3 machines again",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let seen =
        page.split_once("name=\"seen\" value=\"").unwrap().1.split('"').next().unwrap().replace(' ', "+");
    for count in ["", "&count=", "&count=2", "&count=x"] {
        let (status, page) =
            browse(&fleet, bulk::CONFIRM, &value, &format!("action=redeploy&seen={seen}{count}"));
        assert!(status == 400 && page.contains("3 machines are to be redeployed"), "{count}: {page}");
    }
    assert!(fleet.store.list(9).unwrap().0.iter().all(|machine| machine.state == DeploymentState::Joined));
    let (status, page) =
        browse(&fleet, bulk::CONFIRM, &value, &format!("action=redeploy&seen={seen}&count=3"));
    assert!(status == 200 && page.contains("<h1>Redeploy: 3 of 3 machines done</h1>"), "{page}");
    assert!(fleet.store.list(9).unwrap().0.iter().all(|machine| machine.state == DeploymentState::Redeploy));
}

/// A fleet of so many machines, all joined, and none else.
fn installed(count: usize) -> (tempfile::TempDir, FleetSources) {
    let (directory, mut fleet, id) = fleet();
    fleet
        .store
        .act(&[id.into()], OperatorAction::Redeploy, &operator(), &Configurations::default(), NOW)
        .unwrap();
    let names: Vec<_> = (1..=count).map(|number| format!("serial-N{number}.yaml")).collect();
    fleet.configurations =
        crate::test_support::configurations(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let peer = [192, 0, 2, 1].into();
    for number in 1..=count {
        let booted =
            fleet.store.boot(&told(&format!("serial=N{number}")), peer, &fleet.configurations, NOW).unwrap();
        let (configuration, _) = booted.tokens.unwrap();
        fleet.store.take(configuration.expose(), peer, &fleet.configurations, 60, NOW).unwrap().unwrap();
        let (id, none) = (booted.machine.unwrap(), Default::default());
        fleet.store.report(id, Some(DeploymentEvent::Joined), &none, &fleet.configurations, NOW).unwrap();
    }
    (directory, fleet)
}

#[test]
fn a_form_of_another_site_and_a_request_without_a_token_act_on_nothing() {
    let (_directory, fleet) = large();
    let id = fleet.machine_named("N1");
    let value = visitor(&fleet).form_value().to_owned();
    let (_, plan) = post(&fleet, bulk::PLAN, &format!("action=deny&machine={id}"));
    for (path, form) in
        [(bulk::PLAN, format!("action=deny&machine={id}")), (bulk::CONFIRM, confirmation(&plan))]
    {
        assert_eq!(browse(&fleet, path, "wrong", &form).0, 403);
        let request =
            FleetRequest { method: "POST", path, authorization: None, body: form.as_bytes(), ..get("") };
        assert_eq!(fleet.answer(&request, NOW).unwrap().status, 401);
        assert_eq!(permissions(&fleet, InstallPermission::Denied), 0);
        assert_eq!(browse(&fleet, path, &value, &form).0, 200);
    }
    assert_eq!(permissions(&fleet, InstallPermission::Denied), 1);
}

#[test]
fn a_form_that_asks_for_nothing_is_refused_with_the_reason() {
    let (_directory, fleet) = large();
    let id = fleet.machine_named("N1");
    for (path, form, words) in [
        (
            bulk::PLAN,
            "action=odd&of=matching".to_owned(),
            "odd is not an action; there are allow, deny, redeploy, forget",
        ),
        (bulk::PLAN, "action=deny".to_owned(), "no machine was chosen"),
        (bulk::PLAN, "action=deny&of=matching&query=name%3Dnobody".to_owned(), "no machine was chosen"),
        (bulk::PLAN, "action=deny&of=all".to_owned(), "all is not a value of `of`"),
        (bulk::PLAN, "action=deny&machine=x".to_owned(), "x is not the id of a machine"),
        (bulk::PLAN, "action=deny&of=matching&query=stage%3Dodd".to_owned(), "odd is not a stage"),
        (bulk::PLAN, "action=deny&of=matching&query=page%3D2".to_owned(), "page is not a key"),
        (bulk::CONFIRM, "action=deny".to_owned(), "no machine was chosen"),
        (bulk::CONFIRM, format!("action=deny&seen={id}"), "the list of confirmed machines is damaged"),
        (bulk::CONFIRM, "action=deny&seen=x.y".to_owned(), "the list of confirmed machines is damaged"),
    ] {
        let (status, json) = post(&fleet, path, &form);
        assert!(status == 400 && json["error"].as_str().unwrap().contains(words), "{form}: {json}");
        let value = visitor(&fleet).form_value().to_owned();
        let (status, page) = browse(&fleet, path, &value, &format!("{form}&back=rack%3Drack-1"));
        assert!(status == 400 && page.contains("Nothing was done"), "{page}");
        assert!(page.contains("href=\"/fleet?rack=rack-1\""), "{page}");
    }
    // What was seen of a machine cannot be invented.
    let (status, json) = post(&fleet, bulk::CONFIRM, &format!("action=deny&seen={id}.0000000000000000"));
    assert_eq!((status, names(&json["done"]).len(), names(&json["refused"])), (200, 0, vec!["N1"]));
    assert_eq!(permissions(&fleet, InstallPermission::Denied), 0);
}

#[test]
fn the_journal_and_the_audit_log_name_each_machine_of_an_action() {
    let (_directory, fleet) = large();
    let (first, second) = (fleet.machine_named("N1"), fleet.machine_named("N2"));
    let (_, plan) = post(&fleet, bulk::PLAN, &format!("action=deny&machine={first}&machine={second}"));
    let notes = RefCell::new(Vec::new());
    let note = |entry: JournalEntry| notes.borrow_mut().push(entry);
    let known =
        super::FleetSources { store: &fleet.store, configurations: &fleet.configurations, note: &note };
    let form = confirmation(&plan);
    let peer = Some([192, 0, 2, 9].into());
    let request =
        FleetRequest { method: "POST", path: bulk::CONFIRM, body: form.as_bytes(), peer, ..get("") };
    fleet.fleet.answer(&request, known, NOW).unwrap();
    let logged = fleet.store.audit(audit::read("").unwrap()).unwrap();
    let names: Vec<_> = logged.iter().rev().map(|entry| entry.record.subject.to_string()).collect();
    assert_eq!(names, ["serial-N1.yaml", "serial-N2.yaml"]);
    assert_eq!(*notes.borrow(), logged.iter().rev().map(audit::journal).collect::<Vec<_>>());
    assert_eq!(logged[0].record.actor, Actor::token("fleet-url", TokenRole::Operate, peer));
}

#[test]
fn a_transaction_that_fails_leaves_its_machines_undone_and_says_so() {
    let id = MachineId::random();
    let machine = bulk::ConfirmedMachine { name: "a".into(), target: id.into() };
    let mut outcome = BulkOutcome::new(OperatorAction::Deny, Vec::new());
    let acted = |result| Some(vec![ActedMachine { result, entry: None }]);
    for result in [
        ActionResult::Done,
        ActionResult::Removed,
        ActionResult::Changed,
        ActionResult::Refused,
        ActionResult::Absent,
    ] {
        outcome.add(std::slice::from_ref(&machine), acted(result));
    }
    outcome.add(&[machine], None);
    assert_eq!(outcome.done.iter().map(|done| done.result).collect::<Vec<_>>(), ["done", "removed"]);
    assert_eq!(outcome.refused.len(), 4);
    assert!(outcome.refused[3].reason.starts_with("the state could not be stored"), "{outcome:?}");
}
