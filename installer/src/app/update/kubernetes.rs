//! Moves this node to the Kubernetes that its OS brings, for `installer update kubernetes`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::node::cluster::{ClusterMember, ClusterPart, etcd_data, member_unit, part_of};
use crate::node::identity::MachineId;
use crate::node::paths::{DOCUMENT, KUBELET_ACCESS};
use crate::node::render::hostname;
use crate::update::kubernetes::{MovedNode, SystemMachine};
use crate::update::skew::MovedPart;
use crate::update::{UpdateLock, UpdatedNode};
use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::program::{Context, Format};
use model::boot::record::SlotState;
use model::config::{self, Distribution};
use model::kubernetes::KubernetesVersion;

/// What the command did.
#[derive(Debug, Serialize)]
struct KubernetesMove {
    /// Whether anything was moved.
    moved: bool,
    /// The version that runs now.
    version: KubernetesVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<KubernetesVersion>,
    /// Where the datastore is as it was before.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
}

/// Moves the node, or goes on with that.
pub(crate) fn move_kubernetes(wait: Duration, context: &Context) -> Result<()> {
    let root = Path::new("/");
    let _lock = UpdateLock::take(root, wait)?;
    let node = UpdatedNode::read(root)?;
    let Some(runs) = node.kubernetes.clone() else {
        let what = "the OS of this node has no Kubernetes";
        return Err(Failure::new(Class::Hardware, what)
            .hint("Update the OS to a release that brings one.")
            .into());
    };
    if node.running_state() != Some(SlotState::Good) {
        let what = "the release that runs is not known to be good yet, and may be taken back";
        return Err(Failure::new(Class::Hardware, what)
            .hint("See `installer health` and `installer update status`; wait until it is good.")
            .into());
    }
    let config = config::load(Path::new(DOCUMENT))?;
    let member = ClusterMember::of(&config);
    let distribution = config.kubernetes.distribution();
    // A controller of the cluster may have made a server of an agent.
    let promoted = Path::new(&etcd_data(distribution)).join("member").exists();
    let part = part_of(&config).map(|part| match part {
        ClusterPart::Agent if promoted => ClusterPart::Server,
        other => other,
    });
    let unit = part.map_or("", |part| member_unit(distribution, part));
    let part = part.map(|part| match part {
        ClusterPart::First | ClusterPart::Server => MovedPart::Server,
        ClusterPart::Witness => MovedPart::Witness,
        ClusterPart::Agent => MovedPart::Agent,
    });
    let name = hostname(&config, MachineId::beside(Path::new(DOCUMENT))?.as_ref());
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
        runner: &SystemRunner,
        part: part.unwrap_or(MovedPart::Agent),
        name: name.context("the node has no name")?,
        kubelet_access: member.as_ref().map(ClusterMember::kubeconfig).unwrap_or_default(),
        nodes_access,
    };
    let moved = MovedNode { root, runner: &SystemRunner, machine: &machine, distribution, part, unit };
    let record = moved.advance(&mut |text| context.tell("kubernetes", text))?;
    let result = match record {
        Some(record) => KubernetesMove {
            moved: true,
            version: record.to,
            from: Some(record.from),
            snapshot: record.snapshot,
        },
        None => KubernetesMove { moved: false, version: runs, from: None, snapshot: None },
    };
    if context.format == Format::Text && result.moved {
        context.tell("kubernetes", &format!("This node runs Kubernetes {} and is healthy.", result.version));
        return Ok(());
    }
    context.show(&result, || format!("Kubernetes {} runs already; there is nothing to do.\n", result.version))
}
