//! Which services of the distribution run: their units are enabled, those of the others are masked.
//!
//! Links to units that the image lacks do no harm: systemd ignores missing units that a target wants.

use super::cluster_node::{ClusterNode, ClusterPart};
use super::vip::KEEPALIVED;
use machine::node_files::NodeFile;
use model::config::{Distribution, PodNetwork, Role};

/// The node's password is kept outside `/etc`, which is new at every boot: without it the cluster refuses the node as another one
/// of the same name.
const PASSWORD: &str =
    "d /var/lib/rancher/node 0700 root root -\nL+ /etc/rancher/node - - - - /var/lib/rancher/node\n";
const KUBELET: &str = "kubelet.service";
const ROUTES: &str = "nqrust-pod-network.service";
const VIRTUAL_ADDRESS: &str = "nqrust-virtual-address.service";

pub(super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    let own = units(node);
    let mut files: Vec<NodeFile> = own.iter().map(|unit| enabled(unit)).collect();
    if node.distribution() != Distribution::Kubeadm {
        files.push(NodeFile::new("etc/tmpfiles.d/nqrust-cluster.conf", 0o644, PASSWORD));
    }
    let masked = all().filter(|unit| !own.contains(unit) && promoted(node) != Some(*unit));
    files.extend(masked.map(|unit| NodeFile::link(&format!("etc/systemd/system/{unit}"), "/dev/null")));
    files
}

fn enabled(unit: &str) -> NodeFile {
    let path = format!("etc/systemd/system/multi-user.target.wants/{unit}");
    NodeFile::link(&path, &format!("/usr/lib/systemd/system/{unit}"))
}

fn units(node: &ClusterNode<'_>) -> Vec<&'static str> {
    let mut units = vec![unit(node.distribution(), node.part)];
    if node.distribution() == Distribution::Kubeadm {
        units.push(KUBELET);
        units.extend(
            (node.config.kubernetes.network.unwrap_or_default() == PodNetwork::Routes).then_some(ROUTES),
        );
        if node.controls() {
            units.extend([KEEPALIVED, VIRTUAL_ADDRESS]);
        }
    }
    units
}

fn all() -> impl Iterator<Item = &'static str> {
    let of = |distribution| {
        let (server, agent) =
            (unit(distribution, ClusterPart::First), unit(distribution, ClusterPart::Agent));
        [Some(server), Some(agent).filter(|agent| *agent != server)].into_iter().flatten()
    };
    Distribution::ALL.into_iter().flat_map(of).chain([KUBELET, ROUTES, KEEPALIVED, VIRTUAL_ADDRESS])
}

/// The unit that a controller of the cluster may start on this node, to make it a server.
fn promoted(node: &ClusterNode<'_>) -> Option<&'static str> {
    let waits = node.part == ClusterPart::Agent && node.config.install.role == Role::Default;
    waits.then(|| unit(node.distribution(), ClusterPart::Server))
}

/// The unit that keeps a node in its cluster, and the one that makes it a member first, where that is another one.
pub(super) fn member_units(
    distribution: Distribution,
    part: ClusterPart,
) -> (&'static str, Option<&'static str>) {
    let unit = unit(distribution, part);
    match distribution {
        Distribution::Rke2 | Distribution::K3s => (unit, None),
        Distribution::Kubeadm => (KUBELET, Some(unit)),
    }
}

pub(super) fn unit(distribution: Distribution, part: ClusterPart) -> &'static str {
    match (distribution, part) {
        (Distribution::Rke2, ClusterPart::Agent) => "rke2-agent.service",
        (Distribution::Rke2, _) => "rke2-server.service",
        (Distribution::K3s, ClusterPart::Agent) => "k3s-agent.service",
        (Distribution::K3s, _) => "k3s.service",
        (Distribution::Kubeadm, _) => "nqrust-kubeadm.service",
    }
}
