//! Asks the cluster that a node shall join, before anything is written: whether it answers, whether it is the one that
//! is meant, and whether it will take the node.
//!
//! RKE2 and K3s have the same supervisor on each server, on different ports (k3s `pkg/server/handlers`). It is asked
//! what a node that joins would ask, in the same order, but only what changes nothing: no certificate for a kubelet,
//! which would register the node's password, and nothing of etcd. [`ask`] holds the conversation, `checks/join.rs`
//! judges what it brought. [`Token`] and [`Authority`] say what of the answers can be believed.

mod authority;
mod client;
mod der;
mod members;
mod talk;
mod token;
pub mod version;

use std::net::Ipv4Addr;
use std::time::SystemTime;

pub use self::authority::Authority;
pub use self::members::Member;
pub use self::talk::ask;
pub use self::token::{Login, Token};
pub use self::version::Version;
use super::intent::is_server;
use super::network::{Offset, Trouble};
use model::config::{Distribution, InstallConfig};

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
    fn place(&self) -> String {
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
pub(super) fn other(distribution: Distribution) -> Distribution {
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
    pub server: Result<(), Trouble>,
    /// How far this machine's clock is from the server's.
    pub clock: Option<Offset>,
    /// The cluster's authority, and whether the token names it.
    pub authority: Result<(Authority, bool), Trouble>,
    /// The token.
    pub token: Result<(), Trouble>,
    /// The agent token that a server brings along.
    pub agent_token: Option<Result<(), Trouble>>,
    /// The version of the cluster's API.
    pub version: Result<Version, Trouble>,
    /// The nodes.
    pub members: Result<Vec<Member>, Trouble>,
}

impl Seen {
    /// Nothing, for this reason.
    #[must_use]
    pub fn nothing(question: &Question, why: Trouble) -> Self {
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
fn see(check: &str) -> Trouble {
    Trouble::Unable(format!("cannot be asked for; see {check}"))
}

/// Makes the node that `config` describes join no other cluster than one of this authority, where its token does not
/// say which: the full form of the token does.
pub fn pin(config: &mut InstallConfig, authority: &Authority) {
    let agents = config.kubernetes.agent_token.as_mut().filter(|_| !is_server(config.install.role));
    let Some(token) = agents.or(config.token.as_mut()) else { return };
    if let Ok(read) = Token::read(token)
        && read.authority.is_none()
    {
        *token = read.pinned_to(authority.digest);
    }
}
