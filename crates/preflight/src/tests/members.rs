//! The paths to the nodes of the cluster to join.

use super::*;
use crate::planned_node::PlannedJoin;
use cluster::join_query::Ports;
use model::config::{Distribution, Role};

const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

fn joining(role: Role) -> PlannedNode {
    let join = PlannedJoin {
        host: HOST.to_string(),
        distribution: Distribution::Kubeadm,
        ports: Ports::of(Distribution::Kubeadm),
        token: None,
        agent_token: None,
        name: Some("node-9".into()),
        carries_address: false,
        version: None,
    };
    PlannedNode { role, join: Some(join), ..PlannedNode::default() }
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, number)
}

/// The node with this number; those from 20 on are workers.
fn member(number: u8) -> ClusterPeer {
    let (name, addresses) = (format!("node-{number}"), vec![address(number)]);
    ClusterPeer { name, addresses, ready: true, keeps_etcd: number < 20, ..ClusterPeer::default() }
}

fn trips(milliseconds: u64, lost: usize) -> Result<RoundTrips, NetworkTrouble> {
    Ok(RoundTrips { sent: 20, times: vec![Duration::from_millis(milliseconds); 20 - lost] })
}

/// A cluster with a server and a worker, to both of which the path is good.
fn network() -> Answers {
    let mut answers = Answers { members: Some(vec![member(21), member(11)]), ..Answers::default() };
    for address in [HOST, address(11), address(21)] {
        answers.trips.insert(address, trips(1, 0));
        let path = PathMtu { device: "mgmt-bo".into(), sent: 9000, carried: 9000 };
        answers.mtu.insert(address, Ok(path));
    }
    answers
}

fn latency(role: Role, network: &Answers) -> CheckOutcome {
    outcome("join-latency", &Machine::fit().facts(), &joining(role), network)
}

fn mtu(network: &Answers) -> CheckOutcome {
    outcome("join-mtu", &Machine::fit().facts(), &joining(Role::Worker), network)
}

#[test]
fn the_address_of_the_cluster_and_every_node_that_is_there_are_measured() {
    let mut answers = network();
    let gone = ClusterPeer { ready: false, ..member(12) };
    let own = ClusterPeer { name: "NODE-9".into(), ..member(19) };
    answers.members.as_mut().unwrap().extend([gone, own]);
    let outcome = latency(Role::Management, &answers);
    expect(&outcome, "passed", "192.0.2.10 is 1.0 ms away; node-11 (192.0.2.11) is 1.0 ms away; node-21");
    let asked = answers.asked.lock().unwrap();
    let expected = [10, 11, 21].map(|last| format!("round trips 192.0.2.{last} [6443, 10250]"));
    let asked: std::collections::BTreeSet<_> = asked.iter().cloned().collect();
    assert_eq!(asked, expected.into());
    expect(&mtu(&answers), "passed", "node-11 (192.0.2.11) gets packets of 9000 bytes");
}

#[test]
fn members_of_etcd_are_near_and_others_need_not_be() {
    for (member, milliseconds, role, word) in [
        (11, 10, Role::Management, "passed"),
        (11, 11, Role::Management, "mild"),
        (11, 11, Role::Witness, "mild"),
        (11, 200, Role::Worker, "passed"),
        (21, 200, Role::Management, "passed"),
    ] {
        let mut answers = network();
        answers.trips.insert(address(member), trips(milliseconds, 0));
        expect(
            &latency(role, &answers),
            word,
            &format!("node-{member} (192.0.2.{member}) is {milliseconds}.0 ms away"),
        );
    }
}

#[test]
fn a_path_that_loses_packets_is_told() {
    for (lost, word, part) in [(1, "passed", ""), (2, "mild", "node-21 (192.0.2.21) lost 2 of 20 packets")] {
        let mut answers = network();
        answers.trips.insert(address(21), trips(1, lost));
        expect(&latency(Role::Worker, &answers), word, part);
    }
}

#[test]
fn a_node_that_this_one_needs_has_to_answer() {
    for (gone, role, word) in [
        (address(11), Role::Management, "found"),
        (address(11), Role::Worker, "mild"),
        (address(21), Role::Management, "mild"),
        (HOST, Role::Worker, "found"),
    ] {
        let mut answers = network();
        answers.trips.remove(&gone);
        expect(&latency(role, &answers), word, &format!("{gone}"));
    }
    let mut answers = network();
    answers.trips.insert(address(11), unable());
    expect(&latency(Role::Management, &answers), "could not run", "node-11 (192.0.2.11) cannot be reached");
}

#[test]
fn packets_that_do_not_arrive_are_told_with_their_size() {
    let mut answers = network();
    let path = PathMtu { device: "mgmt-bo".into(), sent: 9000, carried: 1500 };
    answers.mtu.insert(address(21), Ok(path));
    let told = "node-21 (192.0.2.21) gets packets of 1500 bytes at most, and mgmt-bo sends up to 9000";
    expect(&mtu(&answers), "found", told);
    answers.mtu.insert(address(21), unable());
    expect(&mtu(&answers), "could not run", "node-21 (192.0.2.21) cannot be reached");
}

#[test]
fn nothing_is_measured_where_no_cluster_answers() {
    let silent = Answers::default();
    for name in ["join-latency", "join-mtu"] {
        let facts = Machine::fit().facts();
        expect(&outcome(name, &facts, &joining(Role::Worker), &silent), "could not run", "see join-server");
        expect(&outcome(name, &facts, &PlannedNode::default(), &silent), "skipped", "joins no cluster");
    }
}
