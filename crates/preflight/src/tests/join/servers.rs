//! Whether a supervisor answers, and which.

use super::*;
use crate::network::Offline;
use crate::run;
use base::failure::Class;
use model::checks::NAMES;
use testing::supervisor::Fault;

fn joins() -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().filter(|name| name.starts_with("join-"))
}

#[test]
fn a_good_server_passes_every_check_and_is_asked_for_nothing_that_changes_it() {
    let keys = Keys::make();
    for distribution in [Distribution::Rke2, Distribution::K3s] {
        let name = distribution.name();
        let version = format!("v1.33.1+{name}1");
        let server = keys.start(SupervisorBehavior { distribution: name, version, ..good() });
        for role in [Role::Default, Role::Management, Role::Worker, Role::Witness] {
            let node = joining(role, server.port(), &keys.token(&format!("server:{SERVER}")));
            let talk = Talk::begin(with(node, |join| join.distribution = distribution));
            for check in joins().filter(|check| *check != "join-vip" || role == Role::Management) {
                talk.expect(check, "passed", "");
            }
        }
        let mut asked = server.asked();
        asked.sort_unstable();
        asked.dedup();
        let expected = [
            "GET /api/v1/nodes".to_owned(),
            "GET /cacerts".to_owned(),
            "GET /ping".to_owned(),
            format!("GET /v1-{name}/client-kube-proxy.crt"),
            "GET /version".to_owned(),
            format!("HEAD /v1-{name}/config"),
            format!("HEAD /v1-{name}/server-bootstrap"),
        ];
        assert_eq!(asked, expected);
    }
}

#[test]
fn a_node_that_joins_nothing_asks_nothing() {
    let node = PlannedNode { join: None, ..PlannedNode::default() };
    let talk = Talk::begin(node);
    for check in joins() {
        talk.expect(check, "skipped", "joins no cluster");
    }
    assert!(talk.seen.get().is_none());
}

#[test]
fn a_port_where_nobody_listens_is_a_finding_and_nothing_else_is_known() {
    let talk = Talk::begin(joining(Role::Worker, closed(), SERVER));
    talk.expect("join-server", "found", "https://127.0.0.1:");
    talk.expect("join-server", "found", "refuses the connection: nothing listens there");
    assert!(talk.next("join-server").contains("server_url"));
    for check in joins().filter(|check| !["join-server", "join-vip"].contains(check)) {
        talk.expect(check, "could not run", "see join-server");
    }
}

#[test]
fn a_server_of_the_other_distribution_is_recognised_by_its_port() {
    let keys = Keys::make();
    let server = keys.start(good());
    let node = joining(Role::Worker, closed(), SERVER);
    let talk = Talk::begin(with(node, |join| {
        join.distribution = Distribution::K3s;
        join.ports.other = server.port();
    }));
    talk.expect("join-server", "found", &format!("on port {} a server of rke2 answers", server.port()));
}

#[test]
fn what_is_no_supervisor_is_told_with_what_came_back() {
    let keys = Keys::make();
    let cases = [
        (
            Fault::Web,
            "another service than the supervisor of rke2: GET /ping gave 404 Not Found (Server: nginx)",
        ),
        (Fault::Plain, "does not speak TLS"),
        (Fault::Close, "cannot be reached"),
    ];
    for (fault, part) in cases {
        let server = keys.start(SupervisorBehavior { fault: Some(fault), ..good() });
        let talk = Talk::begin(joining(Role::Worker, server.port(), SERVER));
        talk.expect("join-server", "found", part);
    }
    let statuses = [("/ping".to_owned(), 503)].into();
    let server = keys.start(SupervisorBehavior { statuses, ..good() });
    let talk = Talk::begin(joining(Role::Worker, server.port(), SERVER));
    talk.expect("join-server", "found", "GET /ping gave 503 Service Unavailable");
}

#[test]
fn a_server_that_says_nothing_is_left_in_time() {
    let keys = Keys::make();
    let server = keys.start(SupervisorBehavior { fault: Some(Fault::Stall), ..good() });
    let begun = Instant::now();
    let mut talk = Talk::begin(joining(Role::Worker, server.port(), SERVER));
    talk.until = Instant::now() + Duration::from_secs(3);
    talk.expect("join-server", "found", "does not answer within");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    let talk = Talk { until: begun, ..Talk::begin(joining(Role::Worker, server.port(), SERVER)) };
    talk.expect("join-server", "could not run", "the time for all checks was over");
}

#[test]
fn another_machine_s_cluster_is_not_asked() {
    let facts = Machine::fit().facts();
    let report = run(&facts, &joining(Role::Worker, closed(), SERVER), &Offline);
    let server = report.checks.iter().find(|verdict| verdict.check == "join-server").unwrap();
    expect(&server.outcome, "could not run", "can only be asked from the machine itself");
}

#[test]
fn an_install_that_cannot_join_ends_with_the_exit_code_for_that() {
    let facts = Machine::fit().facts();
    let node = joining(Role::Worker, closed(), SERVER);
    let failure = run(&facts, &node, &SystemNetwork::default()).verdict_in_full().unwrap_err();
    assert_eq!(failure.class(), Class::Join);
    let text = base::failure::render(&failure.into());
    assert!(text.contains("join-server: https://127.0.0.1:") && text.contains("[join-server]"), "{text}");
    let skip = vec!["join-server".to_owned()];
    assert!(run(&facts, &PlannedNode { skip, ..node }, &SystemNetwork::default()).verdict().is_ok());
}

#[test]
fn clocks_that_are_further_apart_than_half_a_minute_are_a_finding() {
    let keys = Keys::make();
    for (ahead, word, part) in [(10, "passed", ""), (90, "found", "behind https"), (-90, "found", "ahead of")]
    {
        let server = keys.start(SupervisorBehavior { ahead, ..good() });
        let talk = Talk::begin(joining(Role::Worker, server.port(), SERVER));
        talk.expect("join-clock", word, part);
    }
}

#[test]
fn a_host_that_nobody_can_look_up_is_a_finding_once_a_name_server_was_asked() {
    let server = Ipv4Addr::new(192, 0, 2, 53);
    let key = (server, "cluster.example.org".to_owned());
    let cases = [
        (Ok(DnsAnswer::NoSuchName), "found", "is unknown to 192.0.2.53"),
        (Ok(DnsAnswer::Addresses(vec![])), "found", "has no IPv4 address"),
        (
            Ok(DnsAnswer::Unwilling("SERVFAIL".into())),
            "found",
            "cannot be looked up: 192.0.2.53 answers SERVFAIL",
        ),
        (silent(), "found", "cannot be looked up: 192.0.2.53 does not answer"),
        (unable(), "could not run", "cannot be looked up: 192.0.2.53 cannot be reached"),
    ];
    for (answer, word, part) in cases {
        let network = Answers { lookup: [(key.clone(), answer)].into(), ..Answers::default() };
        let node = with(joining(Role::Worker, closed(), SERVER), |join| join.host = key.1.clone());
        let node = PlannedNode { name_servers: vec![server], ..node };
        expect(&outcome("join-server", &Machine::fit().facts(), &node, &network), word, part);
    }
}
