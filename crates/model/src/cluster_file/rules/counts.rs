//! How many machines of which role a cluster has.
//!
//! etcd decides by majority: n members stand the loss of (n - 1) / 2, rounded down, so that an even member adds
//! nothing but one more that can fail (<https://etcd.io/docs/v3.5/faq/#what-is-failure-tolerance>). A witness is the
//! third vote where there are two machines for everything else.

use crate::cluster_file::document::{ClusterFile, NodeCounts};
use crate::cluster_file::layers::ClusterNode;
use crate::cluster_file::places::pool;
use crate::config::Role;
use document::finding::Finding;
use document::shape::join;

/// More members than this make every write slower and stand no failure that matters.
const MOST_MEMBERS: usize = 7;
/// Copies of every volume, unless the file says.
const COPIES: usize = 3;

pub(in crate::cluster_file) fn counts(nodes: &[ClusterNode]) -> NodeCounts {
    NodeCounts {
        management: count(nodes, Role::Management),
        witness: count(nodes, Role::Witness),
        worker: count(nodes, Role::Worker) + count(nodes, Role::Default),
    }
}

fn count(nodes: &[ClusterNode], role: Role) -> usize {
    nodes.iter().filter(|node| node.role == Some(role)).count()
}

/// One management machine creates the cluster.
pub(super) fn one_creates(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let asked = nodes.iter().filter(|node| machine_says(file, node));
    let (fit, unfit): (Vec<_>, Vec<_>) = asked.partition(|node| node.role == Some(Role::Management));
    for node in unfit {
        let message =
            "the machine that creates the cluster runs the control plane; its pool has another role";
        findings.push(Finding::new(join(&node.path(), "create"), "wrong-role", message));
    }
    for node in fit.iter().skip(1) {
        let message = format!("{} creates the cluster already", fit[0].name);
        findings.push(Finding::new(join(&node.path(), "create"), "two-creators", message));
    }
    if nodes.is_empty() || nodes.iter().any(|node| node.creates || node.role.is_none()) {
        return findings;
    }
    let message = match count(nodes, Role::Management) {
        0 => "a cluster needs a machine of the role management, which creates it",
        _ => "every management machine says `create: false`, so that nobody creates the cluster",
    };
    findings.push(Finding::new("pools", "no-creator", message));
    findings
}

fn machine_says(file: &ClusterFile, node: &ClusterNode) -> bool {
    file.pools[node.pool].machines[node.machine].create == Some(true)
}

/// The members of etcd are an odd number, and not too many.
pub(super) fn etcd_can_decide(_: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let counts = counts(nodes);
    let (members, warning) =
        (counts.members(), |code, message: String| vec![Finding::warning("pools", code, message)]);
    if members > MOST_MEMBERS {
        return warning(
            "many-members",
            format!("{members} members of etcd slow each other down; 3, 5 or 7 are usual"),
        );
    }
    // The rule about witnesses reports clusters that have one.
    if members == 0 || members % 2 == 1 || counts.witness > 0 {
        return Vec::new();
    }
    let message = match members {
        2 => "two management machines are no safer than one, for either is needed to decide; add a witness or a third".to_owned(),
        _ => format!("{members} members of etcd stand no more failures than {}; leave one out or add one", members - 1),
    };
    warning("even-members", message)
}

/// A witness stands beside two management machines, and alone.
pub(super) fn witness_fits(_: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let mut witnesses = nodes.iter().filter(|node| node.role == Some(Role::Witness));
    let Some(first) = witnesses.next() else { return Vec::new() };
    let mut findings: Vec<_> = witnesses
        .map(|node| {
            let message = format!("a cluster has at most one witness, and {} is one", first.name);
            Finding::new(join(&node.path(), "hostname"), "second-witness", message)
        })
        .collect();
    let role = join(&pool(first.pool), "role");
    let misfit = match count(nodes, Role::Management) {
        // A missing management machine is reported by its own rule.
        0 | 2 => None,
        1 => Some(
            "a witness is the third vote beside two management machines; beside one, the cluster stops when either fails"
                .to_owned(),
        ),
        more => Some(format!(
            "a witness is useful beside two management machines only, and the cluster has {more}"
        )),
    };
    findings.extend(misfit.map(|message| Finding::warning(role, "misfit-witness", message)));
    findings
}

/// There are as many machines with data as copies of it.
pub(super) fn copies_have_room(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let counts = counts(nodes);
    let keepers = counts.management + counts.worker;
    let given = file.shared_config().install.harvester.storage_class.replica_count;
    let copies = given.and_then(|copies| usize::try_from(copies).ok()).unwrap_or(COPIES);
    if keepers == 0 || copies <= keepers {
        return Vec::new();
    }
    let message = format!("every volume has {copies} copies, and {keepers} of the machines can keep one");
    let path = "cluster.install.harvester.storage_class.replica_count";
    vec![Finding::warning(path, "too-many-copies", message).suggest(format!("replica_count: {keepers}"))]
}
