//! Asks the cluster that a node will join, before anything is written: whether it answers, whether it is the one that
//! is meant, and whether it will take the node.
//!
//! RKE2 and K3s have the same supervisor on each server, on different ports (k3s `pkg/server/handlers`). It is asked
//! what a node that joins would ask, in the same order, but only what changes nothing: no certificate for a kubelet,
//! which would register the node's password, and nothing of etcd. [`ask`] makes the requests, `checks/join.rs` judges
//! the answers. [`Token`] and [`Authority`] decide which answers can be trusted.

mod authority;
mod certificate;
mod client;
mod members;
mod question;
mod talk;
mod token;
pub mod version;

pub use self::authority::Authority;
pub use self::members::ClusterPeer;
pub use self::question::{Ports, Question, Seen};
pub(super) use self::question::{is_server, other};
pub use self::talk::ask;
pub use self::token::{Login, Token};
pub use self::version::Version;
use model::config::InstallConfig;

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
