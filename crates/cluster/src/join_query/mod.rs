//! Checks the cluster that a node will join before anything is written: that it answers, that it is the right one, and that it
//! will admit the node.
//!
//! The requests are those of a node that joins, in the same order, without those that change the cluster: no certificate for a
//! kubelet, which would register the node, and nothing to etcd. [`ask`] makes them in the protocol of the distribution,
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

/// Pins the token of `config` to this authority, unless it names one already.
pub fn pin(config: &mut InstallConfig, authority: &Authority) {
    let agents = config.kubernetes.agent_token.as_mut().filter(|_| !is_server(config.install.role));
    let Some(token) = agents.or(config.token.as_mut()) else { return };
    if let Ok(read) = Token::read(token)
        && read.authority.is_none()
    {
        *token = read.pinned_to(authority.digest);
    }
}
