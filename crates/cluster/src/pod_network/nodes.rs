//! From the nodes of a cluster to routes: a pure function.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use model::config::Cidr;

use crate::kubernetes::node::Node;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodRoutes {
    /// The network of this node's pods.
    pub(super) own: Option<Cidr>,
    /// The node of each other pod network.
    pub(super) others: BTreeMap<Cidr, Ipv4Addr>,
    /// Nodes without a route, and why.
    pub(super) problems: Vec<String>,
}

/// The routes of the node `name` among `nodes`.
pub(super) fn routes(name: &str, nodes: &BTreeMap<String, Node>) -> PodRoutes {
    let mut routes = PodRoutes::default();
    for (other, node) in nodes {
        let pods = match node.spec.pods.as_deref().map(str::parse::<Cidr>) {
            Some(Ok(pods)) => pods,
            Some(Err(_)) => {
                routes.problems.push(format!("{other} has a network of pods that is not IPv4"));
                continue;
            }
            // The controller manager has not given it one yet.
            None => continue,
        };
        if other == name {
            routes.own = Some(pods);
            continue;
        }
        match node.internal_address() {
            Some(address) => match routes.others.insert(pods, address) {
                None => {}
                Some(_) => routes
                    .problems
                    .push(format!("{other} has the same network of pods as another node, {pods}")),
            },
            None => routes.problems.push(format!("{other} has no IPv4 address")),
        }
    }
    if let Some(own) = routes.own.filter(|own| routes.others.contains_key(own)) {
        routes.others.remove(&own);
        routes.problems.push(format!("another node has the same network of pods as this one, {own}"));
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn node(name: &str, pods: Option<&str>, address: Option<&str>) -> (String, Node) {
        let addresses: Vec<_> =
            address.iter().map(|address| json!({ "type": "InternalIP", "address": address })).collect();
        let node = json!({
            "metadata": { "name": name, "resourceVersion": "7" },
            "spec": { "podCIDR": pods },
            "status": { "addresses": addresses },
        });
        (name.to_owned(), serde_json::from_value(node).unwrap())
    }

    #[test]
    fn every_other_node_is_the_way_to_its_pods() {
        let nodes = [
            node("a", Some("10.52.0.0/24"), Some("192.0.2.1")),
            node("b", Some("10.52.1.0/24"), Some("192.0.2.2")),
            node("c", None, Some("192.0.2.3")),
        ];
        let found = routes("a", &nodes.into());
        let other = ("10.52.1.0/24".parse().unwrap(), Ipv4Addr::new(192, 0, 2, 2));
        assert_eq!(found.own, "10.52.0.0/24".parse().ok());
        assert_eq!(found.others.into_iter().collect::<Vec<_>>(), [other]);
        assert!(found.problems.is_empty(), "a node without pods is only new");
    }

    #[test]
    fn what_makes_a_route_impossible_is_told_with_the_node() {
        let nodes = [
            node("a", Some("10.52.0.0/24"), Some("192.0.2.1")),
            node("b", Some("10.52.0.0/24"), Some("192.0.2.2")),
            node("c", Some("fd00::/64"), Some("192.0.2.3")),
            node("d", Some("10.52.3.0/24"), None),
        ];
        let found = routes("a", &nodes.into());
        assert!(found.others.is_empty(), "{found:?}");
        let told = found.problems.join("; ");
        for part in [
            "c has a network of pods that is not IPv4",
            "d has no IPv4 address",
            "same network of pods as this one",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }

    proptest! {
        #[test]
        fn no_route_leads_to_the_node_itself_or_its_own_pods(
            nodes in proptest::collection::vec((0_u8..6, 0_u8..4, 1_u8..9), 0..8),
        ) {
            let nodes = nodes.into_iter().map(|(name, net, address)| {
                node(&format!("n{name}"), Some(&format!("10.52.{net}.0/24")), Some(&format!("192.0.2.{address}")))
            });
            let found = routes("n0", &nodes.collect());
            for pods in found.others.keys() {
                prop_assert!(Some(*pods) != found.own);
            }
        }
    }
}
