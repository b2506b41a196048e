//! What the cluster to join is asked, and what a conversation with it brings.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use super::authority::Authority;
use super::members::ClusterPeer;
use super::token::Token;
use super::version::Version;
use crate::preflight::ntp::ClockOffset;
use crate::preflight::trouble::NetworkTrouble;
use model::config::{Distribution, Role};

/// What to ask, and where.
#[derive(Clone, Debug)]
pub struct Question {
    /// Host of the cluster, as the configuration names it.
    pub host: String,
    /// Where that is.
    pub addresses: Vec<Ipv4Addr>,
    /// Ports of its servers.
    pub ports: Ports,
    /// What the node runs.
    pub distribution: Distribution,
    /// What the node shows to its cluster, if that is known.
    pub token: Option<Token>,
    /// What the nodes that a server takes in will have to show, where that is something else.
    pub agent_token: Option<Token>,
    /// Whether the node becomes a server.
    pub server: bool,
    /// This machine's clock.
    pub now: SystemTime,
}

impl Question {
    /// The supervisor as people name it.
    pub(super) fn place(&self) -> String {
        format!("https://{}:{}", self.host, self.ports.supervisor)
    }
}

/// Ports of a cluster's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The supervisor.
    pub supervisor: u16,
    /// The supervisor of the other distribution.
    pub other: u16,
    /// The Kubernetes API.
    pub api: u16,
}

impl Ports {
    /// The ports of a distribution.
    #[must_use]
    pub fn of(distribution: Distribution) -> Self {
        let (supervisor, other) = (distribution.supervisor_port(), other(distribution).supervisor_port());
        Self { supervisor, other, api: 6443 }
    }
}

/// The distribution that it is not.
pub(in crate::preflight) fn other(distribution: Distribution) -> Distribution {
    match distribution {
        Distribution::Rke2 => Distribution::K3s,
        Distribution::K3s => Distribution::Rke2,
    }
}

/// What a conversation brought. Troubles are clauses that follow the name of whom they are about: for the server
/// [`Question`]'s host and port, for the rest what the field says.
#[derive(Clone, Debug)]
pub struct Seen {
    /// How the supervisor is called here, `https://HOST:PORT`.
    pub place: String,
    /// Where that is.
    pub addresses: Vec<Ipv4Addr>,
    /// Whether a supervisor answers there.
    pub server: Result<(), NetworkTrouble>,
    /// How far this machine's clock is from the server's.
    pub clock: Option<ClockOffset>,
    /// The cluster's authority, and whether the token names it.
    pub authority: Result<(Authority, bool), NetworkTrouble>,
    /// The token.
    pub token: Result<(), NetworkTrouble>,
    /// The agent token that a server brings along.
    pub agent_token: Option<Result<(), NetworkTrouble>>,
    /// The version of the cluster's API.
    pub version: Result<Version, NetworkTrouble>,
    /// The nodes.
    pub members: Result<Vec<ClusterPeer>, NetworkTrouble>,
}

impl Seen {
    /// Nothing, for this reason.
    #[must_use]
    pub fn nothing(question: &Question, why: NetworkTrouble) -> Self {
        Self {
            place: question.place(),
            addresses: question.addresses.clone(),
            server: Err(why),
            clock: None,
            authority: Err(see("join-server")),
            token: Err(see("join-server")),
            agent_token: None,
            version: Err(see("join-server")),
            members: Err(see("join-server")),
        }
    }
}

/// What is not known because something else is not as it should be.
pub(super) fn see(check: &str) -> NetworkTrouble {
    NetworkTrouble::Unable(format!("cannot be asked for; see {check}"))
}

/// Whether a node of this role joins as a server.
pub(in crate::preflight) fn is_server(role: Role) -> bool {
    matches!(role, Role::Management | Role::Witness)
}
