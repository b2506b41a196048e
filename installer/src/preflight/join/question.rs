//! What to ask the cluster that a node will join, and the result.

use std::net::Ipv4Addr;
use std::time::SystemTime;

use super::authority::Authority;
use super::members::ClusterPeer;
use super::token::Token;
use super::version::Version;
use crate::preflight::ntp::ClockOffset;
use crate::preflight::trouble::NetworkTrouble;
use model::config::{Distribution, Role};

#[derive(Clone, Debug)]
pub struct Question {
    /// Host of the cluster, as the configuration names it.
    pub host: String,
    pub addresses: Vec<Ipv4Addr>,
    pub ports: Ports,
    pub distribution: Distribution,
    /// The token that the node joins with, if it is known.
    pub token: Option<Token>,
    /// The token that agents will join with, where a server sets another one for them.
    pub agent_token: Option<Token>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub supervisor: u16,
    /// The supervisor of the other distribution.
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

pub(in crate::preflight) fn other(distribution: Distribution) -> Distribution {
    match distribution {
        Distribution::Rke2 => Distribution::K3s,
        Distribution::K3s => Distribution::Rke2,
    }
}

/// What the cluster answered. Errors are clauses that follow the name of their subject: for the server
/// [`Question`]'s host and port, for the rest what the field says.
#[derive(Clone, Debug)]
pub struct Seen {
    /// How the supervisor is called here, `https://HOST:PORT`.
    pub place: String,
    pub addresses: Vec<Ipv4Addr>,
    /// Whether a supervisor answers there.
    pub server: Result<(), NetworkTrouble>,
    /// How far this machine's clock is from the server's.
    pub clock: Option<ClockOffset>,
    /// The cluster's authority, and whether the token names it.
    pub authority: Result<(Authority, bool), NetworkTrouble>,
    /// Whether the token is accepted.
    pub token: Result<(), NetworkTrouble>,
    /// Whether the agent token of a server is accepted.
    pub agent_token: Option<Result<(), NetworkTrouble>>,
    pub version: Result<Version, NetworkTrouble>,
    pub members: Result<Vec<ClusterPeer>, NetworkTrouble>,
}

impl Seen {
    /// Nothing was asked, for this reason.
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

/// For what is unknown because another check failed.
pub(super) fn see(check: &str) -> NetworkTrouble {
    NetworkTrouble::Unable(format!("cannot be asked for; see {check}"))
}

/// Whether a node of this role joins as a server.
pub(in crate::preflight) fn is_server(role: Role) -> bool {
    matches!(role, Role::Management | Role::Witness)
}
