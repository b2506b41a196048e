//! Whether this node is a member of its cluster, as the API server sees it.

use std::path::Path;

use crate::api::kubelet::KubeApi;
use crate::configuration::ClusterMember;
use machine::paths::below;
use model::config::InstallConfig;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It was never one, or the cluster has no node of this name any more.
    None,
    Member,
    /// Why the cluster could not be asked.
    Unknown(String),
}

/// Asks the cluster of this document for the node `name`, with the access of the node's kubelet.
#[must_use]
pub fn membership(root: &Path, config: &InstallConfig, name: &str) -> Membership {
    let Some(member) = ClusterMember::of(config) else { return Membership::None };
    let kubeconfig = member.kubeconfig();
    if !below(root, &kubeconfig).exists() {
        return Membership::None;
    }
    match KubeApi::open(root, &kubeconfig).and_then(|api| api.node(name)) {
        Ok(Some(_)) => Membership::Member,
        Ok(None) => Membership::None,
        Err(why) => Membership::Unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;

    #[test]
    fn a_node_without_a_cluster_or_without_access_to_it_is_no_member_and_a_broken_access_tells_nothing() {
        let root = tempfile::tempdir().unwrap();
        let config = |text: &str| parse(text, "f").unwrap();
        let alone = config("install: {mode: install}");
        assert_eq!(membership(root.path(), &alone, "node-a"), Membership::None);
        let first = config("install: {mode: create, vip: 192.0.2.10}\ntoken: x");
        assert_eq!(membership(root.path(), &first, "node-a"), Membership::None);
        let access = ClusterMember::of(&first).unwrap().kubeconfig();
        let access = below(root.path(), &access);
        std::fs::create_dir_all(access.parent().unwrap()).unwrap();
        std::fs::write(&access, "damaged").unwrap();
        assert!(matches!(membership(root.path(), &first, "node-a"), Membership::Unknown(_)));
    }
}
