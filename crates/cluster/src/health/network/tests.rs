use super::*;
use model::config::parse;
use testing::runner::ScriptedRunner;

const NAMED: &str = "install: {management_interface: {interfaces: [{name: a}], method: dhcp}}";
const ROUTE: &str = r#"[{"dst":"default","gateway":"192.0.2.1","protocol":"dhcp","flags":[]}]"#;

/// With these routes, and an entry that is `before` until the kernel is made to ask, then `after`. The second value are the
/// commands that make it ask.
fn look(document: &str, routes: Option<&str>, before: &str, after: &str) -> (Finding, Vec<String>) {
    let kernel = ScriptedRunner::silent()
        .answer("ip -json -details address", "[]")
        .answer("neighbour show", after)
        .answer("neighbour show", before)
        .times(1);
    let kernel = match routes {
        Some(routes) => kernel.answer("route", routes),
        None => kernel.fail("route", "no ip"),
    };
    let kernel = kernel.answer("-6 route", "[]");
    let results = results(&kernel, &parse(document, "f").unwrap());
    assert!(results[0].finding.reason().unwrap().contains("no device mgmt-br") || document != NAMED);
    let changes = kernel.commands().into_iter().filter(|line| !line.starts_with("ip -json"));
    (results[1].finding.clone(), changes.collect())
}

const REACHABLE: &str = r#"[{"dst":"192.0.2.1","lladdr":"02:00:00:00:00:01","state":["REACHABLE"]}]"#;
const STALE: &str = r#"[{"dst":"192.0.2.1","lladdr":"02:00:00:00:00:01","state":["STALE"]}]"#;
const FAILED: &str = r#"[{"dst":"192.0.2.1","state":["FAILED"]}]"#;

#[test]
fn a_gateway_that_was_heard_of_lately_is_not_asked() {
    assert_eq!(look(NAMED, Some(ROUTE), REACHABLE, FAILED), (Finding::Healthy, vec![]));
}

#[test]
fn a_gateway_that_was_not_is_asked_anew() {
    let (finding, asked) = look(NAMED, Some(ROUTE), STALE, REACHABLE);
    assert_eq!(finding, Finding::Healthy);
    assert_eq!(asked, ["ip -4 neighbour change 192.0.2.1 dev mgmt-br nud probe"]);
    let (finding, asked) = look(NAMED, Some(ROUTE), "[]", REACHABLE);
    assert_eq!(finding, Finding::Healthy);
    assert_eq!(asked, ["ip -4 neighbour replace 192.0.2.1 dev mgmt-br use"]);
    let (finding, _) = look(NAMED, Some(ROUTE), STALE, FAILED);
    assert_eq!(finding.reason(), Some("192.0.2.1 does not answer ARP on mgmt-br"));
}

#[test]
fn a_network_without_a_route_to_a_gateway_says_so() {
    assert_eq!(look(NAMED, Some("[]"), "[]", "[]").0.reason(), Some("there is no route to a gateway"));
    assert!(matches!(look(NAMED, None, "[]", "[]").0, Finding::CannotSay { .. }));
}

#[test]
fn without_named_cards_the_device_of_the_route_counts() {
    let route = r#"[{"dst":"default","gateway":"192.0.2.1","dev":"ens3"}]"#;
    let (_, asked) = look("{}", Some(route), "[]", FAILED);
    assert_eq!(asked, ["ip -4 neighbour replace 192.0.2.1 dev ens3 use"]);
}
