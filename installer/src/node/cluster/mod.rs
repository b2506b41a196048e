//! The node's part in its Kubernetes cluster: what RKE2 or K3s reads, a pure function of the node document, the node's
//! name and the size of the machine.
//!
//! [`config`] is the distribution's own configuration, [`services`] decides which of its units runs, [`vip`] carries the
//! virtual address, and [`objects`] are what the cluster's first node applies, beside what the OS image ships
//! ([`shipped`](fn@shipped)). What is YAML to others is written as
//! JSON: the same to their parsers, without YAML's surprises.

mod config;
pub mod facts;
mod objects;
mod reserved;
mod services;
mod shipped;
#[cfg(test)]
mod tests;
mod vip;

use std::net::Ipv4Addr;

use serde_json::Value;

pub use self::facts::Facts;
pub use self::shipped::{SHIPPED, shipped};
use self::vip::Vip;
pub use self::vip::vip_image;
use super::files::NodeFile;
use model::config::{Distribution, InstallConfig, Mode, Role, VipMode};

/// What the node does in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Starts the cluster.
    First,
    /// A further node with a control plane.
    Server,
    /// A member of etcd without a control plane.
    Witness,
    /// Runs pods only.
    Agent,
}

/// What the files are made from.
struct Node<'a> {
    config: &'a InstallConfig,
    name: Option<&'a str>,
    facts: Facts,
    part: Part,
    /// Host of the cluster to join.
    host: Option<String>,
}

impl Node<'_> {
    fn distribution(&self) -> Distribution {
        self.config.kubernetes.distribution
    }

    /// Where the distribution reads its configuration.
    fn etc(&self, file: &str) -> String {
        format!("etc/rancher/{}/{file}", self.distribution().name())
    }

    /// Where the distribution keeps its state.
    fn state(&self, file: &str) -> String {
        format!("var/lib/rancher/{}/{file}", self.distribution().name())
    }

    /// A manifest that the first server applies.
    fn manifest(&self, name: &str, text: impl Into<String>) -> NodeFile {
        NodeFile::new(&self.state(&format!("server/manifests/{name}.yaml")), 0o600, text)
    }

    /// Whether the node runs a control plane.
    fn controls(&self) -> bool {
        matches!(self.part, Part::First | Part::Server)
    }

    /// The address that the control plane has wherever it runs. The document of a node that joins need not repeat it:
    /// it is where the cluster is.
    fn vip(&self) -> Option<Vip<'_>> {
        let install = &self.config.install;
        let given = install.vip.as_ref().map(Ipv4Addr::to_string);
        if install.vip_mode == Some(VipMode::Dhcp) {
            return Some(Vip::Dhcp { address: given, mac: install.vip_hw_addr.as_deref() });
        }
        given.or_else(|| self.host.clone()).map(Vip::Static)
    }
}

/// A node as one of its cluster, for those who watch it come up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The distribution that it runs.
    pub distribution: Distribution,
    /// The unit of systemd that runs it.
    pub unit: &'static str,
    /// Whether it starts the cluster.
    pub first: bool,
    /// Whether it is a server of its cluster, a member of etcd.
    pub server: bool,
    /// The host at which the cluster is found, where the document tells one.
    pub host: Option<String>,
}

impl Member {
    /// The node of this document; `None` where nothing of a cluster is written for it.
    #[must_use]
    pub fn of(config: &InstallConfig) -> Option<Self> {
        let joined = joined(config);
        let part = part(config, joined.as_deref())?;
        let vip = config.install.vip.as_ref().map(Ipv4Addr::to_string);
        let distribution = config.kubernetes.distribution;
        let unit = services::unit(distribution, part);
        let (first, server) = (part == Part::First, part != Part::Agent);
        Some(Self { distribution, unit, first, server, host: joined.or(vip) })
    }

    /// The address of the distribution's own service on `host`.
    #[must_use]
    pub fn supervisor(&self, host: &str) -> String {
        supervisor(self.distribution, host)
    }
}

/// The virtual address of the cluster as the document tells it, in words.
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

/// Where nodes ask to join: the port differs from that of the API with RKE2.
fn supervisor(distribution: Distribution, host: &str) -> String {
    format!("https://{host}:{}", distribution.supervisor_port())
}

/// Host of the cluster to join.
fn joined(config: &InstallConfig) -> Option<String> {
    let url = config.server_url.as_ref().filter(|_| config.install.mode == Mode::Join);
    url.map(|url| url.host().to_owned())
}

/// What the node does; nothing in mode `install`, and where it is to join and is not told where: a server without that
/// would start a cluster of its own.
fn part(config: &InstallConfig, joined: Option<&str>) -> Option<Part> {
    match (config.install.mode, config.install.role, joined) {
        (Mode::Install, _, _) | (Mode::Join, _, None) => None,
        (Mode::Create, _, _) => Some(Part::First),
        (Mode::Join, Role::Management, _) => Some(Part::Server),
        (Mode::Join, Role::Witness, _) => Some(Part::Witness),
        (Mode::Join, Role::Default | Role::Worker, _) => Some(Part::Agent),
    }
}

/// The files of a node's part in its cluster, sorted; none where it has no part.
#[must_use]
pub fn files(config: &InstallConfig, name: Option<&str>, facts: Facts) -> Vec<NodeFile> {
    let host = joined(config);
    let Some(part) = part(config, host.as_deref()) else { return Vec::new() };
    let node = Node { config, name, facts, part, host };
    let mut files = config::files(&node);
    files.extend(services::files(&node));
    files.extend(vip::files(&node));
    if part == Part::First {
        files.extend(objects::files(&node));
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

/// Whether the node of this document starts a cluster.
fn starts_cluster(config: &InstallConfig) -> bool {
    config.install.mode == Mode::Create
}

/// JSON for a file.
fn text(value: &Value) -> String {
    format!("{value:#}\n")
}
