//! Rules about all machines of a cluster. A rule sees the file and its nodes; it names the path of the
//! file that it is about.

mod address;
mod counts;
mod form;
mod plan;
mod unique;

use super::document::ClusterFile;
use super::layers::ClusterNode;
use document::finding::Finding;

pub(super) use counts::counts;
pub(super) use unique::own_cards;

type Rule = fn(&ClusterFile, &[ClusterNode]) -> Vec<Finding>;

const RULES: &[Rule] = &[
    form::scheme_version,
    form::is_complete,
    form::templates_are_there,
    unique::pools,
    unique::hostnames,
    unique::addresses,
    unique::cards,
    counts::one_creates,
    counts::etcd_can_decide,
    counts::witness_fits,
    counts::copies_have_room,
    address::is_known,
    address::is_no_nodes_own,
    address::is_certified,
    plan::one_subnet,
    plan::one_packet_size,
    plan::one_vlan,
    plan::one_method,
];

/// The findings of all rules; each mistake of one place once.
pub(super) fn check(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for finding in RULES.iter().flat_map(|rule| rule(file, nodes)) {
        // A mistake in a template counts once, however many machines have it.
        if !findings.iter().any(|known| known.path == finding.path && known.code == finding.code) {
            findings.push(finding);
        }
    }
    findings
}
