//! etcd by its HTTP gateway (etcd, "gRPC gateway"), with the certificates that the node of a member has.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use reqwest::blocking::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::kubeconfig::client;
use super::paths::below;
use model::config::Distribution;
use transfer::download::reason;

/// The member of this node.
pub const OWN_MEMBER: &str = "https://127.0.0.1:2379";
const TIMEOUT: Duration = Duration::from_secs(30);
/// A member that runs says so at once.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// A member as the gateway tells it; its numbers are texts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EtcdMember {
    #[serde(rename = "ID")]
    pub id: String,
    /// Empty for one that has never run.
    #[serde(default)]
    pub name: String,
    #[serde(default, rename = "clientURLs")]
    pub addresses: Vec<String>,
    /// Whether it has no vote yet; then etcd can do without it.
    #[serde(default, rename = "isLearner")]
    pub learns: bool,
}

#[derive(Deserialize)]
struct Members {
    #[serde(default)]
    members: Vec<EtcdMember>,
}

/// The access to the members of a cluster's etcd.
#[derive(Debug)]
pub struct EtcdGateway {
    http: Client,
    health: Client,
}

impl EtcdGateway {
    /// The access of the node at `root`.
    ///
    /// # Errors
    /// If it has no certificates for it, or they cannot be used.
    pub fn open(root: &Path, distribution: Distribution) -> Result<Self> {
        let client = Self::access(root, distribution)?;
        Ok(Self { http: client(TIMEOUT)?, health: client(HEALTH_TIMEOUT)? })
    }

    /// What makes clients with the access of the node at `root`, each with a time limit.
    pub(super) fn access(
        root: &Path,
        distribution: Distribution,
    ) -> Result<impl Fn(Duration) -> Result<Client> + use<>> {
        // kubeadm `certs etcd-healthcheck-client`; k3s `pkg/daemons/control/deps`, which RKE2 has too.
        let (directory, names) = match distribution {
            Distribution::Kubeadm => (
                "/etc/kubernetes/pki/etcd".to_owned(),
                ["healthcheck-client.crt", "healthcheck-client.key", "ca.crt"],
            ),
            Distribution::Rke2 | Distribution::K3s => (
                format!("/var/lib/rancher/{}/server/tls/etcd", distribution.name()),
                ["client.crt", "client.key", "server-ca.crt"],
            ),
        };
        let read = |file: &str| {
            let path = below(root, &directory).join(file);
            fs::read(&path).with_context(|| format!("reading {}", path.display()))
        };
        let [certificate, key, authority] = names;
        let mut pem = read(certificate)?;
        pem.push(b'\n');
        pem.extend(read(key)?);
        let authority = read(authority)?;
        Ok(move |timeout| client(&authority, &pem, timeout).map_err(anyhow::Error::msg))
    }

    /// Every member, as the one at `url` has them.
    pub fn members(&self, url: &str) -> Result<Vec<EtcdMember>> {
        let listed: Members = serde_json::from_value(self.post(url, "list", &json!({}))?)
            .context("reading the list of etcd's members")?;
        Ok(listed.members)
    }

    /// Removes a member for good.
    pub fn remove(&self, url: &str, member: &EtcdMember) -> Result<()> {
        self.post(url, "remove", &json!({ "ID": member.id })).map(drop)
    }

    /// Whether it runs, healthy or not.
    #[must_use]
    pub fn answers(&self, member: &EtcdMember) -> bool {
        member.addresses.iter().any(|url| self.health.get(format!("{url}/health")).send().is_ok())
    }

    /// Whether it says that it is healthy: it has a leader, and its data are read and written (etcd `etcdhttp`).
    #[must_use]
    pub fn is_healthy(&self, member: &EtcdMember) -> bool {
        let healthy = |url: &String| {
            let answer = self.health.get(format!("{url}/health")).send();
            answer.is_ok_and(|answer| answer.status().is_success())
        };
        member.addresses.iter().any(healthy)
    }

    fn post(&self, url: &str, verb: &str, body: &Value) -> Result<Value> {
        let sent = self.http.post(format!("{url}/v3/cluster/member/{verb}")).body(body.to_string()).send();
        let answer = sent.map_err(|error| anyhow::anyhow!("it does not answer: {}", reason(&error)))?;
        let status = answer.status();
        let text = answer.text().map_err(|error| anyhow::anyhow!("it broke off: {}", reason(&error)))?;
        anyhow::ensure!(status.is_success(), "it answers {status} to member/{verb}");
        serde_json::from_str(&text).context("it answers something other than JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_tells_members_with_numbers_as_texts() {
        let listed = r#"{"header":{"cluster_id":"1"},"members":[{"ID":"10276657743932975437","name":"node-2","clientURLs":["https://a"]},{"ID":"7"}]}"#;
        let members: Members = serde_json::from_str(listed).unwrap();
        assert_eq!(
            members.members[0],
            EtcdMember {
                id: "10276657743932975437".into(),
                name: "node-2".into(),
                addresses: vec!["https://a".into()],
                learns: false,
            }
        );
    }

    #[test]
    fn a_node_without_certificates_says_which_file_it_misses() {
        let root = tempfile::tempdir().unwrap();
        let told = format!("{:#}", EtcdGateway::open(root.path(), Distribution::K3s).unwrap_err());
        assert!(told.contains("/var/lib/rancher/k3s/server/tls/etcd/client.crt"), "{told}");
    }
}
