//! Asks the cluster that a node will join, before anything is written: whether it answers, whether it is the one that
//! is meant, and whether it will take the node.
//!
//! It is asked what a node that joins would ask, in the same order, but only what changes nothing: no certificate for a kubelet,
//! which would register the node, and nothing of etcd. [`ask`] makes the requests in the protocol of the distribution,
//! [`supervisor`] or [`mod@kubeadm`]; `checks/join.rs` judges the answers. [`Token`], [`Authority`] and [`cluster_info`] decide which
//! answers can be trusted.

mod authority;
mod certificate;
mod cluster_configuration;
mod cluster_info;
mod conversation;
mod kubeadm;
mod members;
mod query;
mod server;
mod supervisor;
pub mod version;

pub use self::authority::{Authority, AuthorityProof, FoundAuthority};
pub use self::cluster_configuration::ClusterNetworks;
pub use self::members::ClusterPeer;
pub use self::query::is_server;
pub use self::query::{ClusterAnswers, JoinQuery, Ports};
pub use self::version::Version;
use std::time::Instant;

use self::conversation::JoinConversation;
use model::config::{Distribution, InstallConfig, Token};

/// Asks the servers of the cluster. It ends by `until`.
#[must_use]
pub fn ask(question: &JoinQuery, until: Instant) -> ClusterAnswers {
    let conversation = JoinConversation::new(question, until);
    match question.distribution {
        Distribution::Rke2 | Distribution::K3s => supervisor::ask(&conversation),
        Distribution::Kubeadm => kubeadm::ask(&conversation),
    }
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
