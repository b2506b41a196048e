//! What the nodes of the cluster have to do with the one that joins.

use super::*;
use cluster::join_query::Version;
use testing::supervisor::node;

const CONTROL: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd"];
const WITNESS: &str = "node-role.harvesterhci.io/witness";

fn nodes() -> Vec<serde_json::Value> {
    vec![node("node-1", &CONTROL, "192.0.2.11", "a"), node("node-3", &[], "192.0.2.13", "b")]
}

fn talk(keys: &Keys, role: Role, nodes: Vec<serde_json::Value>) -> Talk {
    let server = keys.start(SupervisorBehavior { nodes, ..good() });
    let talk = Talk::begin(joining(role, server.port(), SERVER));
    talk.expect("join-server", "passed", "");
    talk
}

#[test]
fn a_name_that_a_node_has_is_taken() {
    let keys = Keys::make();
    talk(&keys, Role::Worker, nodes()).expect(
        "join-hostname",
        "passed",
        "no node of the cluster is called node-2",
    );
    let mut taken = nodes();
    taken.push(node("node-2", &[], "192.0.2.12", "c"));
    let talk = talk(&keys, Role::Worker, taken);
    talk.expect("join-hostname", "found", "node-2 is the name of another node of the cluster (192.0.2.12)");
    let next = talk.next("join-hostname");
    assert!(next.starts_with("Choose another os.hostname."), "{next}");
    let unnamed = with(joining(Role::Worker, closed(), SERVER), |join| join.name = None);
    expect(&Talk::begin(unnamed).of("join-hostname"), "skipped", "os.hostname");
}

#[test]
fn a_machine_that_is_installed_again_has_to_be_forgotten_first() {
    let taken = vec![node("node-2", &[WITNESS], "192.0.2.12", UUID)];
    let talk = talk(&Keys::make(), Role::Witness, taken);
    talk.expect("join-hostname", "found", "this machine, as it was installed before");
    assert_eq!(
        talk.next("join-hostname"),
        "Let the cluster forget it, then install: kubectl delete node node-2; kubectl -n kube-system delete \
         secret --ignore-not-found node-2.node-password.rke2"
    );
    // It is no second witness.
    talk.expect("join-witness", "passed", "");
}

#[test]
fn a_second_witness_is_refused() {
    let keys = Keys::make();
    talk(&keys, Role::Witness, nodes()).expect("join-witness", "passed", "none of the 2 nodes is a witness");
    for labels in [&[WITNESS][..], &["node-role.kubernetes.io/etcd"]] {
        let mut with = nodes();
        with.push(node("node-4", labels, "192.0.2.14", "d"));
        let talk = talk(&keys, Role::Witness, with);
        talk.expect("join-witness", "found", "node-4 (192.0.2.14) is the witness of the cluster");
        assert!(talk.next("join-witness").contains("kubectl delete node node-4"));
    }
    use crate::Severity::{Error, Off};
    use model::config::Profile::Production;
    let of = |role| check("join-witness").severity(role, Production);
    assert_eq!([of(Role::Witness), of(Role::Management), of(Role::Worker)], [Error, Off, Off]);
}

#[test]
fn a_management_node_takes_the_address_of_the_cluster_and_not_that_of_a_node() {
    let keys = Keys::make();
    talk(&keys, Role::Management, nodes()).expect("join-vip", "passed", "127.0.0.1 is no node's own address");
    let own = vec![node("node-1", &CONTROL, "127.0.0.1", "a")];
    let on_a_node = talk(&keys, Role::Management, own.clone());
    on_a_node.expect("join-vip", "found", "127.0.0.1 in server_url is the own address of node-1");
    talk(&keys, Role::Worker, own).expect("join-vip", "skipped", "will not answer for the address");
}

#[test]
fn an_api_that_tells_nothing_is_no_reason_not_to_join() {
    let keys = Keys::make();
    for (path, status, part) in [
        ("/api/v1/nodes", 403, "/api/v1/nodes gave 403 Forbidden"),
        ("/v1-rke2/client-kube-proxy.crt", 503, "client-kube-proxy.crt gave 503 Service Unavailable"),
    ] {
        let server =
            keys.start(SupervisorBehavior { statuses: [(path.to_owned(), status)].into(), ..good() });
        let talk = Talk::begin(joining(Role::Management, server.port(), SERVER));
        for check in ["join-hostname", "join-witness", "join-vip"] {
            talk.expect(check, "could not run", part);
        }
        talk.expect("join-token", "passed", "");
    }
    let server = keys.start(good());
    let node = joining(Role::Management, server.port(), SERVER);
    let talk = Talk::begin(with(node, |join| join.ports.api = closed()));
    talk.expect("join-hostname", "could not run", "refuses the connection");
    talk.expect("join-version", "could not run", "refuses the connection");
}

#[test]
fn another_distribution_and_an_older_version_are_told() {
    let keys = Keys::make();
    let cases = [
        ("v1.33.1+k3s1", None, "found", "which is k3s, and this node is to run rke2"),
        ("v1.33.1+rke2r1", None, "passed", "the cluster runs v1.33.1+rke2r1"),
        ("v1.33.1+rke2r1", Some("v1.33.1+rke2r1"), "passed", ""),
        ("v1.34.0+rke2r1", Some("v1.33.1+rke2r1"), "passed", ""),
        ("v1.33.1+rke2r1", Some("v1.33.2+rke2r1"), "mild", "v1.33.2+rke2r1, which is newer"),
        ("v1.32.9+rke2r1", Some("v1.33.2+rke2r1"), "found", "v1.33.2+rke2r1, which is newer"),
    ];
    for (running, own, word, part) in cases {
        let server = keys.start(SupervisorBehavior { version: running.into(), ..good() });
        let node = joining(Role::Worker, server.port(), SERVER);
        let own = own.map(|own| Version::read(own).unwrap());
        let talk = Talk::begin(with(node, |join| join.version = own));
        talk.expect("join-version", word, part);
    }
}
