//! The members of etcd as a node finds them that joins again under the name of an earlier one.
//!
//! A node whose disk is new has lost its copy of the cluster, but etcd still counts it. kubeadm takes a member of the same address
//! for the node itself (`etcd.AddMemberAsLearner`), and etcd must not go on with an empty copy under an old identity. So the old
//! member is removed first, by etcd's HTTP gateway (etcd, "gRPC gateway").

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use reqwest::blocking::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::node::kubeconfig::client;
use crate::node::paths::below;
use base::failure::{Class, Failure};
use transfer::download::reason;

/// Where kubeadm has etcd's certificates, and where etcd has its copy.
const CERTIFICATES: &str = "/etc/kubernetes/pki/etcd";
const COPY: &str = "/var/lib/etcd/member";
const TIMEOUT: Duration = Duration::from_secs(30);
/// The annotation of etcd's pods in which kubeadm writes their address.
const ADDRESS: &str = "kubeadm.kubernetes.io/etcd.advertise-client-urls";

/// A member as the gateway tells it; its numbers are texts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Member {
    #[serde(rename = "ID")]
    id: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Members {
    #[serde(default)]
    members: Vec<Member>,
}

/// Removes the member that an earlier node of the name `name` left. `pods` are etcd's pods as the API lists them.
///
/// # Errors
/// [`Class::Join`] if no member answers.
pub(super) fn remove_stale(root: &Path, name: &str, pods: &[u8]) -> Result<Option<String>> {
    if below(root, COPY).exists() {
        // This node is a member itself.
        return Ok(None);
    }
    let others = others(pods, name)?;
    let mut failures = Vec::new();
    for url in &others {
        match ask(root, url, name) {
            Ok(removed) => return Ok(removed),
            Err(error) => failures.push(format!("{url}: {error:#}")),
        }
    }
    Err(Failure::new(Class::Join, "no member of the cluster's etcd answers")
        .because(anyhow::anyhow!("{}", failures.join("\n  because: ")))
        .hint("Most of the management nodes have to run while another one joins.")
        .into())
}

fn ask(root: &Path, url: &str, name: &str) -> Result<Option<String>> {
    let read = |file: &str| {
        let path = below(root, CERTIFICATES).join(file);
        fs::read(&path).with_context(|| format!("reading {}", path.display()))
    };
    let mut pem = read("healthcheck-client.crt")?;
    pem.extend(read("healthcheck-client.key")?);
    let http = client(&read("ca.crt")?, &pem, TIMEOUT).map_err(anyhow::Error::msg)?;
    let listed: Members = serde_json::from_value(post(&http, url, "list", &json!({}))?)
        .context("reading the list of etcd's members")?;
    let Some(stale) = listed.members.into_iter().find(|member| member.name == name) else { return Ok(None) };
    post(&http, url, "remove", &json!({ "ID": stale.id }))?;
    Ok(Some(stale.id))
}

fn post(http: &Client, url: &str, verb: &str, body: &Value) -> Result<Value> {
    let sent = http.post(format!("{url}/v3/cluster/member/{verb}")).body(body.to_string()).send();
    let answer = sent.map_err(|error| anyhow::anyhow!("it does not answer: {}", reason(&error)))?;
    let status = answer.status();
    let text = answer.text().map_err(|error| anyhow::anyhow!("it broke off: {}", reason(&error)))?;
    anyhow::ensure!(status.is_success(), "it answers {status} to member/{verb}");
    serde_json::from_str(&text).context("it answers something other than JSON")
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
    fn a_node_with_a_copy_of_the_cluster_removes_no_member() {
        let root = tempfile::tempdir().unwrap();
        assert!(remove_stale(root.path(), "node-2", b"{}").is_err(), "nobody answers");
        fs::create_dir_all(below(root.path(), COPY)).unwrap();
        assert_eq!(remove_stale(root.path(), "node-2", b"not read").unwrap(), None);
    }

    #[test]
    fn the_gateway_tells_members_with_numbers_as_texts() {
        let listed = r#"{"header":{"cluster_id":"1"},"members":[{"ID":"10276657743932975437","name":"node-2"},{"ID":"7"}]}"#;
        let members: Members = serde_json::from_str(listed).unwrap();
        assert_eq!(members.members[0], Member { id: "10276657743932975437".into(), name: "node-2".into() });
    }
}
