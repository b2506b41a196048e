//! Which other machine answers for an address: the kernel's table of neighbours, through iproute2.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Duration;

use base::command::{Invocation, Runner};
use serde::Deserialize;

/// For one run of iproute2.
const LIMIT: Duration = Duration::from_secs(5);
/// A machine in the same segment answers within milliseconds.
const ANSWER: Duration = Duration::from_millis(500);

/// An address that this node has and that another machine answers for as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RivalMachine {
    pub(crate) address: Ipv4Addr,
    /// Its hardware address.
    pub(crate) machine: String,
}

/// One entry in the output of `ip -json neighbour`.
#[derive(Deserialize)]
pub(crate) struct Neighbour {
    pub(crate) lladdr: Option<String>,
    #[serde(default)]
    pub(crate) state: Vec<String>,
}

/// The entries for `address`, on one device or on all; none if iproute2 does not answer.
pub(crate) fn entries(runner: &dyn Runner, address: IpAddr, device: Option<&str>) -> Vec<Neighbour> {
    let family = if address.is_ipv4() { "-4" } else { "-6" };
    let show = Invocation::new("ip").args(["-json", family, "neighbour", "show", "to", &address.to_string()]);
    let show = show.args(device.into_iter().flat_map(|device| ["dev", device]));
    let json = runner.run(&show.limit(LIMIT)).unwrap_or_default();
    serde_json::from_slice(&json).unwrap_or_default()
}

/// Asks the segment of `device` who else has `address`, which this node has.
///
/// The kernel never asks for its own addresses by itself; it does for an entry of the table that is said to be used
/// (`NTF_USE`, rtnetlink(7)), and does not answer itself.
pub(crate) fn rival(runner: &dyn Runner, device: &str, address: Ipv4Addr) -> Option<RivalMachine> {
    let own = address.to_string();
    let table = |verb: &str, more: &[&str]| {
        let ip = Invocation::new("ip").args(["-4", "neighbour", verb, &own, "dev", device]);
        runner.run(&ip.args(more.iter().copied()).limit(LIMIT)).is_ok()
    };
    // What was known of the address before this node had it.
    table("delete", &[]);
    let asked = table("replace", &["use"]);
    if asked {
        thread::sleep(ANSWER);
    }
    let answer = asked.then(|| holder(runner, address)).flatten();
    table("delete", &[]);
    answer.map(|machine| RivalMachine { address, machine })
}

/// The hardware address of the machine that has answered for `address`.
pub(crate) fn holder(runner: &dyn Runner, address: Ipv4Addr) -> Option<String> {
    let answered =
        |entry: &Neighbour| !entry.state.iter().any(|state| state == "FAILED" || state == "INCOMPLETE");
    entries(runner, address.into(), None).into_iter().filter(answered).find_map(|entry| entry.lladdr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::runner::ScriptedRunner;

    const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

    /// With a kernel that has this entry for the address, once it is told to use it; and the commands.
    fn asked(entry: &str) -> (Option<RivalMachine>, Vec<String>) {
        let kernel = ScriptedRunner::silent()
            .answer(" show ", entry)
            .fail(" delete ", "there is no entry to delete")
            .times(1);
        (rival(&kernel, "mgmt-br", VIP), kernel.commands())
    }

    #[test]
    fn another_machine_that_has_the_address_is_found_and_the_table_left_as_it_was() {
        let (rival, asked) = asked(
            r#"[{"dst":"192.0.2.10","dev":"mgmt-br","lladdr":"e2:af:5d:56:44:15","state":["REACHABLE"]}]"#,
        );
        let machine = "e2:af:5d:56:44:15".to_owned();
        assert_eq!(rival, Some(RivalMachine { address: VIP, machine }));
        let words = ["delete", "replace", "show", "delete"];
        assert_eq!(asked.len(), words.len(), "{asked:?}");
        assert!(asked.iter().zip(words).all(|(run, word)| run.contains(word)), "{asked:?}");
        assert!(asked[1].ends_with("192.0.2.10 dev mgmt-br use"), "{asked:?}");
    }

    #[test]
    fn an_address_that_nobody_else_answers_for_is_the_nodes_own() {
        for entry in [
            "",
            "[]",
            r#"[{"dst":"192.0.2.10","state":["INCOMPLETE"]}]"#,
            r#"[{"dst":"192.0.2.10","lladdr":"e2:af:5d:56:44:15","state":["FAILED"]}]"#,
        ] {
            assert_eq!(asked(entry).0, None, "{entry}");
        }
    }
}
