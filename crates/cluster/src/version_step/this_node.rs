//! The step on the node that this program runs on.

use std::path::Path;

use anyhow::Result;

use super::machine::SystemMachine;
use super::record::MoveRecord;
use super::run::{MovedNode, TakeTurn};
use crate::configuration::{ClusterMember, ClusterPart, etcd_data, member_unit, part_of};
use crate::version_skew::MovedPart;
use base::command::Runner;
use machine::installed_node::InstalledNode;
use machine::paths::{KUBELET_ACCESS, below};
use model::config::Distribution;

/// Moves the node at `root` to the version that its OS brings, or goes on with that, as [`MovedNode::advance`] does.
///
/// # Errors
/// Those of [`MovedNode::advance`], and a document that cannot be read.
pub fn move_this_node(
    root: &Path,
    runner: &dyn Runner,
    turn: &TakeTurn<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<Option<MoveRecord>> {
    let node = InstalledNode::open(root)?;
    node.warn(say);
    let member = ClusterMember::of(&node.config);
    let distribution = node.config.kubernetes.distribution();
    // A controller of the cluster may have made a server of an agent.
    let promoted = below(root, &etcd_data(distribution)).join("member").exists();
    let part = part_of(&node.config).map(|part| match part {
        ClusterPart::Agent if promoted => ClusterPart::Server,
        other => other,
    });
    let unit = part.map_or("", |part| member_unit(distribution, part));
    let part = part.map(|part| match part {
        ClusterPart::First | ClusterPart::Server => MovedPart::Server,
        ClusterPart::Witness => MovedPart::Witness,
        ClusterPart::Agent => MovedPart::Agent,
    });
    let nodes_access = match distribution {
        Distribution::Kubeadm => KUBELET_ACCESS.to_owned(),
        // Its own controller on each node, which sees all of them (k3s `pkg/agent/config`).
        Distribution::Rke2 | Distribution::K3s => {
            let name = distribution.name();
            format!("/var/lib/rancher/{name}/agent/{name}controller.kubeconfig")
        }
    };
    let machine = SystemMachine {
        root,
        runner,
        part: part.unwrap_or(MovedPart::Agent),
        name: node.name()?,
        kubelet_access: member.as_ref().map(ClusterMember::kubeconfig).unwrap_or_default(),
        nodes_access,
    };
    MovedNode { root, runner, machine: &machine, distribution, part, unit }.advance(turn, say)
}
