//! Which service of the distribution runs: its unit is enabled, the others are masked.
//!
//! Links to units that the image lacks do no harm: systemd ignores missing units that a target wants.

use super::cluster_node::{ClusterNode, ClusterPart};
use crate::node::files::NodeFile;
use model::config::{Distribution, Role};

/// The node's password in its cluster is kept outside `/etc`, which is new at every boot: without it the cluster takes the node
/// for another one of the same name and refuses it.
const PASSWORD: &str =
    "d /var/lib/rancher/node 0700 root root -\nL+ /etc/rancher/node - - - - /var/lib/rancher/node\n";

pub(super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    let own = unit(node.distribution(), node.part);
    let mut files = vec![
        NodeFile::new("etc/tmpfiles.d/nqrust-cluster.conf", 0o644, PASSWORD),
        NodeFile::link(
            &format!("etc/systemd/system/multi-user.target.wants/{own}"),
            &format!("/usr/lib/systemd/system/{own}"),
        ),
    ];
    let masked = Distribution::ALL
        .into_iter()
        .flat_map(|distribution| [ClusterPart::First, ClusterPart::Agent].map(|part| (distribution, part)))
        .filter(|(distribution, part)| unit(*distribution, *part) != own && !promotable(node, *distribution))
        .map(|(distribution, part)| format!("etc/systemd/system/{}", unit(distribution, part)));
    files.extend(masked.map(|path| NodeFile::link(&path, "/dev/null")));
    files
}

/// Whether a controller of the cluster may start the server on this node.
fn promotable(node: &ClusterNode<'_>, distribution: Distribution) -> bool {
    let waits = node.part == ClusterPart::Agent && node.config.install.role == Role::Default;
    waits && distribution == node.distribution()
}

pub(super) fn unit(distribution: Distribution, part: ClusterPart) -> &'static str {
    match (distribution, part) {
        (Distribution::Rke2, ClusterPart::Agent) => "rke2-agent.service",
        (Distribution::Rke2, _) => "rke2-server.service",
        (Distribution::K3s, ClusterPart::Agent) => "k3s-agent.service",
        (Distribution::K3s, _) => "k3s.service",
    }
}
