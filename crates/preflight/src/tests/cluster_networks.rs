//! The networks of the cluster, and the address of a node with etcd.

use super::*;
use crate::planned_node::{AddressClaim, PlannedCluster};
use cluster::join_query::ClusterNetworks;
use model::config::{Distribution, parse};

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn planned(distribution: Distribution, keeps_etcd: bool, dhcp: bool) -> PlannedNode {
    let networks = ClusterNetworks { pods: cidr("10.52.0.0/16"), services: cidr("10.53.0.0/16") };
    let cluster = Some(PlannedCluster { distribution, networks, keeps_etcd });
    PlannedNode { cluster, dhcp, ..PlannedNode::default() }
}

fn networks(node: &PlannedNode, own: &[(&str, &str)]) -> CheckOutcome {
    let own = own.iter().map(|(device, network)| ((*device).to_owned(), cidr(network))).collect();
    outcome(
        "cluster-networks",
        &Machine::fit().facts(),
        node,
        &Answers { networks: own, ..Answers::default() },
    )
}

#[test]
fn networks_of_the_cluster_that_the_node_is_in_are_a_finding() {
    let dhcp = planned(Distribution::Kubeadm, true, true);
    for (device, network, word, part) in [
        ("ens1", "192.0.2.0/24", "passed", "10.52.0.0/16 for pods and 10.53.0.0/16 for services"),
        ("ens1", "10.52.3.0/24", "found", "the cluster's pods, 10.52.0.0/16, overlaps 10.52.3.0/24 at ens1"),
        ("ens1", "10.0.0.0/8", "found", "overlaps 10.0.0.0/8 at ens1"),
        ("ens1", "10.53.0.0/16", "found", "the cluster's services, 10.53.0.0/16, overlaps"),
        ("cni0", "10.52.1.0/24", "passed", ""),
        ("flannel.1", "10.52.0.0/32", "passed", ""),
    ] {
        expect(&networks(&dhcp, &[("lo0", "198.51.100.0/24"), (device, network)]), word, part);
    }
    // The node will have another address than this system.
    let fixed = planned(Distribution::K3s, false, false);
    expect(&networks(&fixed, &[("ens1", "10.52.3.0/24")]), "passed", "");
    expect(
        &networks(&PlannedNode::default(), &[("ens1", "10.52.3.0/24")]),
        "skipped",
        "the node joins no cluster",
    );
}

#[test]
fn a_fixed_address_in_a_network_of_the_cluster_is_a_finding() {
    let claim = AddressClaim {
        address: [10, 52, 0, 7].into(),
        key: "install.management_interface.ip".into(),
        cards: named(&["ens1"]),
        vlan: 0,
        device: "mgmt-br".into(),
    };
    let node = PlannedNode { claims: vec![claim], ..planned(Distribution::Kubeadm, false, false) };
    let outcome = networks(&node, &[]);
    expect(&outcome, "found", "10.52.0.0/16, overlaps 10.52.0.7/32 of install.management_interface.ip");
}

#[test]
fn a_node_with_etcd_and_an_address_from_dhcp_is_warned_of() {
    use Distribution::{K3s, Kubeadm};
    for (distribution, keeps_etcd, dhcp, word) in [
        (Kubeadm, true, true, "found"),
        (Kubeadm, true, false, "passed"),
        (Kubeadm, false, true, "skipped"),
        (K3s, true, true, "skipped"),
    ] {
        let node = planned(distribution, keeps_etcd, dhcp);
        let outcome = outcome("etcd-address", &Machine::fit().facts(), &node, &Answers::default());
        assert_eq!(told(&outcome).0, word, "{distribution:?} {keeps_etcd} {dhcp}");
    }
    use crate::Severity::Warning;
    use model::config::Role;
    assert_eq!(check("etcd-address").severity(Role::Management, Profile::Production), Warning);
    let of = |install: &str| {
        let url = if install.contains("join") { "server_url: https://192.0.2.10\n" } else { "" };
        let document = format!("{url}kubernetes: {{distribution: kubeadm}}\ninstall: {install}\n");
        PlannedNode::of(&parse(&document, "f").unwrap()).cluster.map(|cluster| cluster.keeps_etcd)
    };
    assert_eq!(of("{mode: create}"), Some(true));
    assert_eq!(of("{mode: join, role: witness}"), Some(true));
    assert_eq!(of("{mode: join, role: worker}"), Some(false));
    assert_eq!(of("{mode: install}"), None);
}
