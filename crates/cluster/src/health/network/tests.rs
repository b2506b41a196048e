use super::*;
use anyhow::Result;
use model::config::parse;
use std::sync::Mutex;

const NAMED: &str = "install: {management_interface: {interfaces: [{name: a}], method: dhcp}}";
const ROUTE: &str = r#"[{"dst":"default","gateway":"192.0.2.1","protocol":"dhcp","flags":[]}]"#;

/// iproute2 with these routes, and an entry that is `before` until the kernel is made to ask, then `after`.
struct Kernel {
    routes: Option<&'static str>,
    before: &'static str,
    after: &'static str,
    asked: Mutex<Vec<String>>,
}

impl Runner for Kernel {
    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        let run = invocation.display();
        let mut asked = self.asked.lock().unwrap();
        let text = match run.as_str() {
            run if run.contains("-6 route") => "[]",
            run if run.contains("route") => self.routes.ok_or_else(|| anyhow::anyhow!("no ip"))?,
            run if run.contains("address") => "[]",
            run if run.contains("show") && asked.is_empty() => self.before,
            run if run.contains("show") => self.after,
            _ => {
                asked.push(run);
                ""
            }
        };
        Ok(text.into())
    }
}

fn look(
    document: &str,
    routes: Option<&'static str>,
    before: &'static str,
    after: &'static str,
) -> (Finding, Vec<String>) {
    let kernel = Kernel { routes, before, after, asked: Mutex::default() };
    let results = results(&kernel, &parse(document, "f").unwrap());
    assert!(results[0].finding.reason().unwrap().contains("no device mgmt-br") || document != NAMED);
    (results[1].finding.clone(), kernel.asked.into_inner().unwrap())
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
