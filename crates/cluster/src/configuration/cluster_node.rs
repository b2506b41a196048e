//! A node as its cluster files need it: its part in the cluster, and the paths of its distribution.

use serde_json::Value;

use super::machine_size::MachineSize;
use machine::node_files::NodeFile;
use machine::paths::KUBERNETES;
use model::config::{Distribution, InstallConfig, Mode, Role};

/// The part of a node in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterPart {
    /// Starts the cluster.
    First,
    /// A further node with a control plane.
    Server,
    /// A member of etcd without a control plane.
    Witness,
    /// Runs pods only.
    Agent,
}

pub(super) struct ClusterNode<'a> {
    pub(super) config: &'a InstallConfig,
    pub(super) name: Option<&'a str>,
    pub(super) size: MachineSize,
    pub(super) part: ClusterPart,
    pub(super) host: Option<String>,
    /// Whether the OS image brings the hypervisor's charts, whose controllers act on objects of the document.
    pub(super) hypervisor: bool,
}

impl ClusterNode<'_> {
    pub(super) fn distribution(&self) -> Distribution {
        self.config.kubernetes.distribution()
    }

    pub(super) fn etc(&self, file: &str) -> String {
        format!("etc/rancher/{}/{file}", self.distribution().name())
    }

    pub(super) fn state(&self, file: &str) -> String {
        format!("var/lib/rancher/{}/{file}", self.distribution().name())
    }

    pub(super) fn manifest(&self, name: &str, text: impl Into<String>) -> NodeFile {
        let directory = manifests(self.distribution());
        NodeFile::new(&format!("{directory}/{name}.yaml"), 0o600, text)
    }

    pub(super) fn controls(&self) -> bool {
        matches!(self.part, ClusterPart::First | ClusterPart::Server)
    }
}

/// The directory of manifests that the first node of a cluster applies, from the root.
pub(super) fn manifests(distribution: Distribution) -> String {
    match distribution {
        Distribution::Rke2 | Distribution::K3s => {
            format!("var/lib/rancher/{}/server/manifests", distribution.name())
        }
        Distribution::Kubeadm => format!("{}/manifests", KUBERNETES.trim_start_matches('/')),
    }
}

/// Where nodes join: with RKE2 at another port than that of the API.
pub(super) fn supervisor(distribution: Distribution, host: &str) -> String {
    format!("https://{host}:{}", distribution.supervisor_port())
}

pub(super) fn joined(config: &InstallConfig) -> Option<String> {
    let url = config.server_url.as_ref().filter(|_| config.install.mode == Mode::Join);
    url.map(|url| url.host().to_owned())
}

/// The part of the node; `None` in mode `install`, and if it is to join an unknown address: a server without one would start a
/// cluster of its own.
pub(super) fn part(config: &InstallConfig, joined: Option<&str>) -> Option<ClusterPart> {
    match (config.install.mode, config.install.role, joined) {
        (Mode::Install, _, _) | (Mode::Join, _, None) => None,
        (Mode::Create, _, _) => Some(ClusterPart::First),
        (Mode::Join, Role::Management, _) => Some(ClusterPart::Server),
        (Mode::Join, Role::Witness, _) => Some(ClusterPart::Witness),
        (Mode::Join, Role::Default | Role::Worker, _) => Some(ClusterPart::Agent),
    }
}

pub(super) fn starts_cluster(config: &InstallConfig) -> bool {
    config.install.mode == Mode::Create
}

/// JSON for a file.
pub(super) fn text(value: &Value) -> String {
    format!("{value:#}\n")
}
