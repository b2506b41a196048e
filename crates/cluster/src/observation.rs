//! One look at this node and its cluster. [`stages`](crate::stages) judges from it how far the node is on its way into the cluster,
//! [`health`](crate::health) whether its release is good.
//!
//! Errors are clauses. Nothing here changes the node or its cluster.

mod cri;
mod etcd;
pub(crate) mod neighbours;

use std::fs;
use std::path::Path;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

pub(crate) use self::etcd::EtcdState;
use crate::api::kubelet::KubeApi;
use crate::api::open::ping;
use crate::configuration::{ClusterMember, ClusterPart, etcd_data};
use crate::kubernetes::node::Node;
use base::command::{Invocation, Runner};
use machine::paths::below;
use model::config::Distribution;

/// For one program.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
const CRI_TIMEOUT: Duration = Duration::from_secs(5);
const KUBELET_URL: &str = "http://127.0.0.1:10248";
const API_URL: &str = "https://127.0.0.1:6443";

/// What the cluster says of the node.
#[derive(Clone, Debug)]
pub(crate) struct ClusterView {
    /// The URL of the cluster, if it answers there.
    pub(crate) server: Result<String, String>,
    /// None if the cluster has no node of this name.
    pub(crate) node: Result<Option<Node>, String>,
}

/// The parts of Kubernetes on the node.
#[derive(Clone, Debug)]
pub(crate) struct Components {
    pub(crate) containerd: Result<(), String>,
    pub(crate) kubelet: Result<(), String>,
    /// None on a node without an API server.
    pub(crate) api: Option<Result<(), String>>,
    /// None on a node without etcd.
    pub(crate) etcd: Option<EtcdState>,
    /// The kernel's id of this boot.
    pub(crate) boot: String,
}

/// A unit of systemd, by the properties of `systemctl show`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitState {
    pub(crate) unit: &'static str,
    /// `LoadState`.
    pub(crate) load: String,
    /// `ActiveState`.
    pub(crate) active: String,
    /// `SubState`.
    pub(crate) sub: String,
    /// `Result`.
    pub(crate) result: String,
    /// How often systemd has restarted it.
    pub(crate) restarts: u64,
}

impl ClusterView {
    /// Asks the cluster of `member` at its address, and its API server for the node `name` with the access of the kubelet. Takes
    /// some seconds if a server does not answer.
    pub(crate) fn observe(root: &Path, member: &ClusterMember, name: Option<&str>) -> Self {
        // The first node, which may not know an address of its cluster, asks itself.
        let url = member.supervisor(member.host.as_deref().unwrap_or("127.0.0.1"));
        thread::scope(|scope| {
            let server = scope.spawn(|| ping(&url, member.health()).map(|()| url.clone()));
            Self { node: node(root, &member.kubeconfig(), name), server: joined(server).flatten() }
        })
    }
}

fn node(root: &Path, kubeconfig: &str, name: Option<&str>) -> Result<Option<Node>, String> {
    let name = name.ok_or("the node has no name")?;
    if !below(root, kubeconfig).exists() {
        return Err("the node has no credentials from its cluster yet".to_owned());
    }
    KubeApi::open(root, kubeconfig)?.node(name)
}

impl Components {
    pub(crate) fn observe(root: &Path, member: &ClusterMember, part: ClusterPart) -> Self {
        let controls = matches!(part, ClusterPart::First | ClusterPart::Server);
        // A node may have been promoted since its document was written.
        let has_etcd = member.server || below(root, &etcd_data(member.distribution)).join("member").exists();
        thread::scope(|scope| {
            let socket = below(root, member.distribution.containerd_socket());
            let containerd = scope.spawn(move || cri::version(&socket, CRI_TIMEOUT).map(drop));
            let kubelet = scope.spawn(|| ping(KUBELET_URL, "/healthz"));
            let api = || match member.distribution {
                Distribution::Kubeadm => ping(API_URL, "/readyz"),
                Distribution::Rke2 | Distribution::K3s => {
                    KubeApi::open(root, &member.kubeconfig())?.at(API_URL).is_ready()
                }
            };
            let api = controls.then(|| scope.spawn(api));
            let etcd = has_etcd.then(|| scope.spawn(EtcdState::observe));
            let boot = fs::read_to_string(root.join("proc/sys/kernel/random/boot_id")).unwrap_or_default();
            Self {
                containerd: joined(containerd).flatten(),
                kubelet: joined(kubelet).flatten(),
                api: api.map(|api| joined(api).flatten()),
                etcd: etcd.map(|etcd| joined(etcd).unwrap_or_else(EtcdState::Silent)),
                boot: boot.trim().to_owned(),
            }
        })
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, String> {
    thread.join().map_err(|_| "internal error: the observation ended early".to_owned())
}

impl UnitState {
    /// `None` if systemd does not answer.
    pub(crate) fn read(runner: &dyn Runner, unit: &'static str) -> Option<Self> {
        let properties = "--property=LoadState,ActiveState,SubState,Result,NRestarts";
        let show = Invocation::new("systemctl").limit(PROGRAM_TIMEOUT).args(["show", properties, unit]);
        let output = runner.run(&show).ok()?;
        let text = String::from_utf8_lossy(&output);
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_default().to_owned()
        };
        Some(Self {
            unit,
            load: value("LoadState"),
            active: value("ActiveState"),
            sub: value("SubState"),
            result: value("Result"),
            restarts: value("NRestarts").parse().unwrap_or_default(),
        })
    }
}

/// The addresses of the node, as iproute2 prints them in JSON.
pub(crate) fn addresses(runner: &dyn Runner) -> Result<Vec<u8>, String> {
    let ip = Invocation::new("ip").args(["-json", "-details", "address"]).limit(PROGRAM_TIMEOUT);
    runner.run(&ip).map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_a_name_or_without_credentials_is_not_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let node = |name| node(root.path(), "/agent/kubelet.kubeconfig", name);
        assert_eq!(node(None).unwrap_err(), "the node has no name");
        assert_eq!(node(Some("a")).unwrap_err(), "the node has no credentials from its cluster yet");
    }
}
