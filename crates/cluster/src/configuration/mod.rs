//! The node's part in its Kubernetes cluster: the files for RKE2 or K3s, a pure function of the node document, the node's name
//! and the size of the machine.
//!
//! [`config`] is the distribution's own configuration, [`registries`] tells its containerd where images are, [`services`] decides
//! which of its units runs, [`vip`] answers for the virtual address, and [`objects`] are what the cluster's first node applies,
//! beside what the OS image ships ([`shipped`](fn@shipped)). YAML files for other programs are written as JSON: the same to their
//! parsers, without YAML's surprises.

mod cluster_node;
mod config;
mod kubeadm;
mod machine_size;
mod objects;
mod registries;
mod reserved;
mod services;
mod settings;
mod shipped;
#[cfg(test)]
mod tests;
mod vip;

use std::net::Ipv4Addr;

pub use self::cluster_node::ClusterPart;
use self::cluster_node::{ClusterNode, joined, part, supervisor};
pub(crate) use self::kubeadm::AGENTS;
pub use self::machine_size::MachineSize;
pub use self::shipped::{shipped, ships_hypervisor};
pub(crate) use self::vip::{CLUSTER, KEEPALIVED, VirtualRouter, is_alone, with_servers};
use machine::node_files::NodeFile;
use machine::paths::KUBELET_ACCESS;
use model::config::{Distribution, InstallConfig, VipMode};

/// A node as a member of its cluster, for watching it come up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMember {
    pub distribution: Distribution,
    /// The unit that keeps the node in its cluster.
    pub unit: &'static str,
    /// The unit that makes it a member first, where that is another one.
    pub joining_unit: Option<&'static str>,
    /// Whether it starts the cluster.
    pub first: bool,
    /// Whether it is a server of its cluster, a member of etcd.
    pub server: bool,
    /// The host of the cluster, if the document gives one.
    pub host: Option<String>,
}

impl ClusterMember {
    /// The member of this document; `None` if no cluster files are written for it.
    #[must_use]
    pub fn of(config: &InstallConfig) -> Option<Self> {
        let joined = joined(config);
        let part = part(config, joined.as_deref())?;
        let vip = config.install.vip.as_ref().map(Ipv4Addr::to_string);
        let distribution = config.kubernetes.distribution();
        let (unit, joining_unit) = services::member_units(distribution, part);
        let (first, server) = (part == ClusterPart::First, part != ClusterPart::Agent);
        Some(Self { distribution, unit, joining_unit, first, server, host: joined.or(vip) })
    }

    #[must_use]
    pub fn supervisor(&self, host: &str) -> String {
        supervisor(self.distribution, host)
    }

    /// Where a server says to anybody that it works.
    #[must_use]
    pub fn health(&self) -> &'static str {
        match self.distribution {
            Distribution::Rke2 | Distribution::K3s => "/ping",
            Distribution::Kubeadm => "/readyz",
        }
    }

    /// The access of the node's kubelet to its cluster.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        match self.distribution {
            Distribution::Rke2 | Distribution::K3s => {
                format!("/var/lib/rancher/{}/agent/kubelet.kubeconfig", self.distribution.name())
            }
            Distribution::Kubeadm => KUBELET_ACCESS.to_owned(),
        }
    }
}

/// The unit that keeps a node of this part in its cluster.
#[must_use]
pub fn member_unit(distribution: Distribution, part: ClusterPart) -> &'static str {
    services::member_units(distribution, part).0
}

/// Where etcd of a node has its data.
#[must_use]
pub fn etcd_data(distribution: Distribution) -> String {
    match distribution {
        Distribution::Rke2 | Distribution::K3s => {
            format!("/var/lib/rancher/{}/server/db/etcd", distribution.name())
        }
        Distribution::Kubeadm => "/var/lib/etcd".to_owned(),
    }
}

/// What the node of this document is for its cluster; `None` if it has no part in one.
#[must_use]
pub fn part_of(config: &InstallConfig) -> Option<ClusterPart> {
    part(config, joined(config).as_deref())
}

/// The virtual address of the cluster in the document, in words.
#[must_use]
pub fn vip_in_words(config: &InstallConfig) -> Option<String> {
    let install = &config.install;
    match (&install.vip, install.vip_mode) {
        (Some(vip), Some(VipMode::Dhcp)) => Some(format!("{vip}, from a DHCP server")),
        (Some(vip), _) => Some(vip.to_string()),
        (None, Some(VipMode::Dhcp)) => Some("from a DHCP server".to_owned()),
        (None, _) => None,
    }
}

/// The cluster files of a node, sorted; empty if it has no part in a cluster. `hypervisor` says whether its OS image brings the charts
/// of the hypervisor ([`ships_hypervisor`]).
#[must_use]
pub fn files(
    config: &InstallConfig,
    name: Option<&str>,
    size: MachineSize,
    hypervisor: bool,
) -> Vec<NodeFile> {
    let host = joined(config);
    let Some(part) = part(config, host.as_deref()) else { return Vec::new() };
    let node = ClusterNode { config, name, size, part, host, hypervisor };
    let mut files = match node.distribution() {
        Distribution::Rke2 | Distribution::K3s => config::files(&node),
        Distribution::Kubeadm => kubeadm::files(&node),
    };
    files.extend(services::files(&node));
    files.extend(vip::files(&node));
    files.extend(registries::files(&node));
    if part == ClusterPart::First {
        files.extend(match node.distribution() {
            Distribution::Rke2 | Distribution::K3s => objects::files(&node),
            Distribution::Kubeadm => kubeadm::objects::files(&node),
        });
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}
