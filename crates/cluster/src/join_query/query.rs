//! The request for a join check, and its result.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use super::authority::FoundAuthority;
use super::cluster_configuration::ClusterNetworks;
use super::members::ClusterPeer;
use super::version::Version;
use machine::clock::ClockOffset;
use machine::network_trouble::NetworkTrouble;
use model::config::{Distribution, Role, Token};

#[derive(Clone, Debug)]
pub struct JoinQuery {
    /// As the configuration names it.
    pub host: String,
    pub addresses: Vec<Ipv4Addr>,
    pub ports: Ports,
    pub distribution: Distribution,
    /// The token that the node joins with, if it is known.
    pub token: Option<Token>,
    /// The token that agents will join with, where a server sets another one for them.
    pub agent_token: Option<Token>,
    pub server: bool,
    /// The name of the node, if the configuration gives one.
    pub name: Option<String>,
    /// This machine's clock.
    pub now: SystemTime,
}

impl JoinQuery {
    /// The server as people name it.
    pub(super) fn place(&self) -> String {
        format!("https://{}:{}", self.host, self.ports.supervisor)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Where nodes join.
    pub supervisor: u16,
    /// The supervisor of another distribution: of RKE2 or K3s.
    pub other: u16,
    pub api: u16,
}

impl Ports {
    #[must_use]
    pub fn of(distribution: Distribution) -> Self {
        let (supervisor, other) = (distribution.supervisor_port(), other(distribution).supervisor_port());
        Self { supervisor, other, api: 6443 }
    }
}

fn other(distribution: Distribution) -> Distribution {
    match distribution {
        Distribution::Rke2 => Distribution::K3s,
        Distribution::K3s | Distribution::Kubeadm => Distribution::Rke2,
    }
}

/// Errors are clauses that follow the name of their subject: for the server its URL, otherwise the field's subject.
#[derive(Clone, Debug)]
pub struct ClusterAnswers {
    /// `https://HOST:PORT`.
    pub place: String,
    pub addresses: Vec<Ipv4Addr>,
    /// Whether a server of the distribution answers there.
    pub server: Result<(), NetworkTrouble>,
    /// How far this machine's clock is from the server's.
    pub clock: Option<ClockOffset>,
    pub authority: Result<FoundAuthority, NetworkTrouble>,
    pub token: Result<(), NetworkTrouble>,
    /// Whether the agent token of a server is accepted.
    pub agent_token: Option<Result<(), NetworkTrouble>>,
    pub version: Result<Version, NetworkTrouble>,
    /// The networks of its pods and services, if known.
    pub networks: Option<ClusterNetworks>,
    /// The node of the cluster that has the name of this one.
    pub namesake: Result<Option<ClusterPeer>, NetworkTrouble>,
    pub members: Result<Vec<ClusterPeer>, NetworkTrouble>,
}

impl ClusterAnswers {
    /// When no request could be made, for this reason.
    #[must_use]
    pub fn nothing(question: &JoinQuery, why: NetworkTrouble) -> Self {
        Self {
            place: question.place(),
            addresses: question.addresses.clone(),
            server: Err(why),
            clock: None,
            authority: Err(see("join-server")),
            token: Err(see("join-server")),
            agent_token: None,
            version: Err(see("join-server")),
            networks: None,
            namesake: Err(see("join-server")),
            members: Err(see("join-server")),
        }
    }
}

/// For what is unknown because another check failed.
pub(super) fn see(check: &str) -> NetworkTrouble {
    NetworkTrouble::Unable(format!("cannot be asked for; see {check}"))
}

/// Whether a node of this role joins as a server.
pub fn is_server(role: Role) -> bool {
    matches!(role, Role::Management | Role::Witness)
}
