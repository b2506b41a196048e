//! Removes members of etcd that are gone for good, before this node becomes a member, by etcd's HTTP gateway (etcd, "gRPC gateway").
//!
//! A node whose disk is new has lost its copy of the cluster, but etcd still counts it. kubeadm takes a member of the same address
//! for the node itself (`etcd.AddMemberAsLearner`), and etcd must not go on with an empty copy under an old identity. And etcd takes
//! no further member while one of those that it counts is away (etcd `server.mayAddMember`): a node that was deleted from the
//! cluster, and does not answer either, would keep every other one from taking its place.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::api::etcd::{EtcdGateway, EtcdMember};
use crate::kubernetes::node::NodeList;
use base::failure::{Class, Failure};
use machine::paths::below;
use model::config::Distribution;

const COPY: &str = "/var/lib/etcd/member";
/// The annotation of etcd's pods in which kubeadm writes their address.
const ADDRESS: &str = "kubeadm.kubernetes.io/etcd.advertise-client-urls";

/// Removes the members that are gone for good: one that an earlier node of the name `name` left, and those whose nodes were deleted
/// from the cluster and that do not answer. `pods` are etcd's pods and `nodes` the cluster's nodes, as the API lists them. Returns the
/// names of the removed ones.
///
/// # Errors
/// [`Class::Join`] if no member answers, or if one does not that has to: kubeadm would ask etcd for many minutes before it says so.
pub(super) fn remove_stale(root: &Path, name: &str, pods: &[u8], nodes: &[u8]) -> Result<Vec<String>> {
    if below(root, COPY).exists() {
        // This node is a member itself.
        return Ok(Vec::new());
    }
    let nodes: NodeList = serde_json::from_slice(nodes).context("reading the list of the cluster's nodes")?;
    let kept: BTreeSet<String> = nodes.items.into_iter().map(|node| node.metadata.name).collect();
    let others = others(pods, name)?;
    let mut failures = Vec::new();
    for url in &others {
        match ask(root, url, name, &kept) {
            Ok(FoundMembers { away, .. }) if !away.is_empty() => return Err(refused(&away).into()),
            Ok(FoundMembers { removed, .. }) => return Ok(removed),
            Err(error) => failures.push(format!("{url}: {error:#}")),
        }
    }
    Err(Failure::new(Class::Join, "no member of the cluster's etcd answers")
        .because(anyhow::anyhow!("{}", failures.join("\n  because: ")))
        .hint("Most of the management nodes have to run while another one joins.")
        .into())
}

fn refused(away: &[String]) -> Failure {
    let what = format!(
        "the member {} of etcd does not answer, and etcd takes no further member while one is away",
        away.join(" and ")
    );
    Failure::new(Class::Join, what).hint(format!(
        "Start it again. If it is lost for good, on a node of the cluster: kubectl delete node {}",
        away.join(" ")
    ))
}

/// The result at one member, by names.
struct FoundMembers {
    removed: Vec<String>,
    /// Voting members that do not answer.
    away: Vec<String>,
}

fn ask(root: &Path, url: &str, name: &str, kept: &BTreeSet<String>) -> Result<FoundMembers> {
    let etcd = EtcdGateway::open(root, Distribution::Kubeadm)?;
    let answers = |member: &EtcdMember| etcd.answers(member);
    let (stale, others) = stale(etcd.members(url)?, name, kept, &answers);
    for member in &stale {
        etcd.remove(url, member)?;
    }
    let names = |members: Vec<EtcdMember>| members.into_iter().map(|member| member.name).collect();
    let away = others.into_iter().filter(|other| !other.learns && !answers(other)).collect();
    Ok(FoundMembers { removed: names(stale), away: names(away) })
}

/// Those of `members` that are gone for good, and the others. One that joins just now is not a node of the cluster yet, but
/// answers; one that has never run has no name.
fn stale(
    members: Vec<EtcdMember>,
    name: &str,
    kept: &BTreeSet<String>,
    answers: &dyn Fn(&EtcdMember) -> bool,
) -> (Vec<EtcdMember>, Vec<EtcdMember>) {
    let gone = |member: &EtcdMember| match member.name.as_str() {
        "" => false,
        own if own == name => true,
        other => !kept.contains(other) && !answers(member),
    };
    members.into_iter().partition(gone)
}

/// The addresses of the members on other nodes.
fn others(pods: &[u8], name: &str) -> Result<Vec<String>> {
    let list: Value = serde_json::from_slice(pods).context("reading the list of etcd's pods")?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let elsewhere = items.iter().filter(|pod| pod["spec"]["nodeName"] != name);
    Ok(elsewhere
        .filter_map(|pod| Some(pod["metadata"]["annotations"][ADDRESS].as_str()?.to_owned()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn members_on_other_nodes_are_asked() {
        let pod = |node: &str| {
            json!({
                "metadata": { "annotations": { ADDRESS: format!("https://{node}.test:2379") } },
                "spec": { "nodeName": node },
            })
        };
        let list = json!({ "items": [pod("node-1"), pod("node-2"), { "metadata": {}, "spec": {} }] });
        assert_eq!(others(list.to_string().as_bytes(), "node-2").unwrap(), ["https://node-1.test:2379"]);
        assert!(others(b"x", "node-2").is_err());
    }

    #[test]
    fn members_that_are_gone_for_good_are_told_from_those_that_come_back() {
        let member = |name: &str| EtcdMember {
            id: "1".into(),
            name: name.into(),
            addresses: Vec::new(),
            learns: false,
        };
        let found = |name: &str, kept: &[&str]| {
            let members = ["node-1", "node-2", "node-3", ""].map(member).into();
            let kept = kept.iter().map(|name| (*name).to_owned()).collect();
            let (stale, _) = stale(members, name, &kept, &|member| member.name == "node-3");
            stale.into_iter().map(|member| member.name).collect::<Vec<_>>()
        };
        assert_eq!(found("node-4", &["node-1", "node-2", "node-3"]), [""; 0]);
        assert_eq!(found("node-4", &["node-1"]), ["node-2"], "node-3 answers");
        assert_eq!(found("node-3", &["node-1", "node-2"]), ["node-3"], "the name of the node that joins");
    }

    #[test]
    fn a_member_that_is_away_is_named_with_what_to_do() {
        let told = base::failure::render(&refused(&["node-2".into()]).into());
        assert!(told.contains("the member node-2 of etcd does not answer"), "{told}");
        assert!(told.contains("kubectl delete node node-2"), "{told}");
    }

    #[test]
    fn a_node_without_another_member_to_ask_says_so() {
        let root = tempfile::tempdir().unwrap();
        let told = remove_stale(root.path(), "node-2", b"{}", b"{\"items\": []}").unwrap_err().to_string();
        assert!(told.contains("no member of the cluster's etcd answers"), "{told}");
        assert!(remove_stale(root.path(), "node-2", b"{}", b"").is_err());
        fs::create_dir_all(below(root.path(), COPY)).unwrap();
        let removed = remove_stale(root.path(), "node-2", b"not read", b"not read").unwrap();
        assert_eq!(removed, [""; 0], "a node with a copy of the cluster is a member");
    }
}
