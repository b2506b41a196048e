//! etcd by its HTTP gateway (etcd, "gRPC gateway"), with the certificates that the node of a member has.
//!
//! With kubeadm the gateway, and `/health`, are at the address at which clients reach a member. RKE2 and K3s keep that for gRPC
//! alone (k3s `pkg/etcd`, `ListenClientHTTPURLs`): there the gateway is for the node itself, and other members tell their health
//! beside their metrics.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use reqwest::StatusCode;
use reqwest::blocking::{Client, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::http;
use base::failure::{Class, Failure};
use machine::paths::below;
use model::config::Distribution;

/// TCP port at which members of RKE2 and K3s give metrics and health to every node (`etcd-expose-metrics`, which ours set).
const METRICS_PORT: u16 = 2381;
const TIMEOUT: Duration = Duration::from_secs(30);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
/// For all data of a member, which is at most some gigabytes on a disk.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// In bytes, of a list of members.
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// A member as the gateway lists it; its numbers are texts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct EtcdMember {
    #[serde(rename = "ID")]
    pub(crate) id: String,
    /// Empty for one that has never run.
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, rename = "clientURLs")]
    pub(crate) addresses: Vec<String>,
    /// Whether it has no vote yet; then etcd can do without it.
    #[serde(default, rename = "isLearner")]
    pub(crate) learns: bool,
}

#[derive(Deserialize)]
struct Members {
    #[serde(default)]
    members: Vec<EtcdMember>,
}

#[derive(Debug)]
pub(crate) struct EtcdGateway {
    http: Client,
    health_http: Client,
    endpoints: EtcdEndpoints,
}

/// Where members answer HTTP requests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EtcdEndpoints {
    /// The gateway of the member of this node.
    own: String,
    /// The port of health without certificates; none where it is at the address for clients.
    metrics_port: Option<u16>,
}

impl EtcdEndpoints {
    fn of(distribution: Distribution) -> Self {
        let (own, metrics_port) = match distribution {
            Distribution::Kubeadm => ("https://127.0.0.1:2379", None),
            Distribution::Rke2 | Distribution::K3s => ("https://127.0.0.1:2382", Some(METRICS_PORT)),
        };
        Self { own: own.to_owned(), metrics_port }
    }

    /// The page with the health of the member whose clients use the address `client_url`. None if that is not a URL.
    fn health(&self, client_url: &str) -> Option<String> {
        let Some(port) = self.metrics_port else { return Some(format!("{client_url}/health")) };
        let mut url = reqwest::Url::parse(client_url).ok()?;
        url.set_scheme("http").ok()?;
        url.set_port(Some(port)).ok()?;
        url.set_path("/health");
        Some(url.into())
    }
}

impl EtcdGateway {
    /// With the certificates of the node at `root`.
    ///
    /// # Errors
    /// If it has none, or they cannot be used.
    pub(crate) fn open(root: &Path, distribution: Distribution) -> Result<Self> {
        let client = access(root, distribution)?;
        let endpoints = EtcdEndpoints::of(distribution);
        Ok(Self { http: client(TIMEOUT)?, health_http: client(HEALTH_TIMEOUT)?, endpoints })
    }

    /// Every member, as the one of this node lists them.
    pub(crate) fn own_members(&self) -> Result<Vec<EtcdMember>> {
        self.members(&self.endpoints.own)
    }

    /// Every member, as the one at `url` lists them.
    pub(crate) fn members(&self, url: &str) -> Result<Vec<EtcdMember>> {
        let listed: Members = serde_json::from_value(self.post(url, "list", &json!({}))?)
            .context("reading the list of etcd's members")?;
        Ok(listed.members)
    }

    /// Removes a member for good.
    pub(crate) fn remove(&self, url: &str, member: &EtcdMember) -> Result<()> {
        self.post(url, "remove", &json!({ "ID": member.id })).map(drop)
    }

    /// Whether it runs, healthy or not.
    pub(crate) fn answers(&self, member: &EtcdMember) -> bool {
        self.health(member).next().is_some()
    }

    /// Whether it has a leader, and its data are read and written (etcd `etcdhttp`).
    pub(crate) fn is_healthy(&self, member: &EtcdMember) -> bool {
        self.health(member).any(|status| status.is_success())
    }

    /// The status of each address of the member that answers.
    fn health(&self, member: &EtcdMember) -> impl Iterator<Item = StatusCode> {
        let urls = member.addresses.iter().filter_map(|url| self.endpoints.health(url));
        urls.filter_map(|url| Some(http::send(self.health_http.get(url)).ok()?.status()))
    }

    fn post(&self, url: &str, verb: &str, body: &Value) -> Result<Value> {
        let request = self.http.post(format!("{url}/v3/cluster/member/{verb}")).body(body.to_string());
        let answer = http::send(request).map_err(|error| anyhow::anyhow!("it {error}"))?;
        let status = answer.status();
        let text = http::body(answer, ANSWER_BYTES_MAX).map_err(|error| anyhow::anyhow!("it {error}"))?;
        anyhow::ensure!(status.is_success(), "it answers {status} to member/{verb}");
        serde_json::from_slice(&text).context("it answers something other than JSON")
    }
}

/// The data of the etcd on this node: lines of JSON with pieces of it (etcd `Maintenance.Snapshot`).
///
/// # Errors
/// [`Class::Join`] if etcd does not answer.
pub(crate) fn snapshot(root: &Path) -> Result<Response> {
    let http = access(root, Distribution::Kubeadm)?(SNAPSHOT_TIMEOUT)?;
    let failed =
        |why: String| Failure::new(Class::Join, "etcd on this node did not return a snapshot").because(why);
    let url = format!("{}/v3/maintenance/snapshot", EtcdEndpoints::of(Distribution::Kubeadm).own);
    let answer = http::send(http.post(url).body("{}")).map_err(|error| failed(format!("it {error}")))?;
    match answer.status() {
        status if status.is_success() => Ok(answer),
        status => Err(failed(format!("it answers {status}")).into()),
    }
}

/// Makes clients, each with a time limit, with the certificates of the node at `root`.
fn access(root: &Path, distribution: Distribution) -> Result<impl Fn(Duration) -> Result<Client> + use<>> {
    // kubeadm `certs etcd-healthcheck-client`; k3s `pkg/daemons/control/deps`, which RKE2 has too.
    let (directory, [certificate, key, authority]) = match distribution {
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
    let pem = [read(certificate)?, read(key)?].join(&b'\n');
    let authority = read(authority)?;
    Ok(move |timeout| http::node_client(&authority, &pem, timeout).map_err(anyhow::Error::msg))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::http::{Answer, Fake};

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
    fn each_distribution_has_its_own_endpoints_for_http() {
        for (distribution, own, health) in [
            (Distribution::Kubeadm, "https://127.0.0.1:2379", "https://192.0.2.12:2379/health"),
            (Distribution::Rke2, "https://127.0.0.1:2382", "http://192.0.2.12:2381/health"),
            (Distribution::K3s, "https://127.0.0.1:2382", "http://192.0.2.12:2381/health"),
        ] {
            let endpoints = EtcdEndpoints::of(distribution);
            assert_eq!(endpoints.own, own);
            assert_eq!(endpoints.health("https://192.0.2.12:2379").as_deref(), Some(health));
        }
        let endpoints = EtcdEndpoints::of(Distribution::Rke2);
        assert_eq!(
            endpoints.health("https://[2001:db8::1]:2379").unwrap(),
            "http://[2001:db8::1]:2381/health"
        );
        assert_eq!(endpoints.health("not a URL"), None);
    }

    /// RKE2 and K3s: HTTP is refused where gRPC is, as etcd does it with `listen-client-http-urls`.
    #[test]
    fn members_that_keep_the_port_of_clients_for_grpc_are_listed_and_tell_their_health_elsewhere() {
        let grpc = Fake::start(|_| Answer::error(404, "only gRPC"));
        let metrics = Fake::start(|request| match request.path.as_str() {
            "/health" => Answer::ok(br#"{"health":"true"}"#),
            _ => Answer::error(404, "no such page"),
        });
        let listed = json!({ "members": [{ "ID": "1", "name": "node-1", "clientURLs": [grpc.url()] }] });
        let gateway = Fake::start(move |_| Answer::ok(listed.to_string().as_bytes()));
        let port = |fake: &Fake| fake.host.rsplit_once(':').unwrap().1.parse().unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = || Client::builder().no_proxy().build().unwrap();
        let with = |own: &Fake, metrics_port| EtcdGateway {
            http: client(),
            health_http: client(),
            endpoints: EtcdEndpoints { own: own.url(), metrics_port },
        };
        let etcd = with(&gateway, Some(port(&metrics)));
        let members = etcd.own_members().unwrap();
        assert!(etcd.is_healthy(&members[0]) && etcd.answers(&members[0]));
        assert!(grpc.requests("").is_empty(), "nothing is asked where gRPC is");
        assert!(!with(&gateway, None).is_healthy(&members[0]), "the double refuses HTTP there");
        assert!(with(&grpc, None).own_members().is_err());
        let silent = with(&gateway, Some(port(&Fake::start(|_| Answer::error(503, "no leader")))));
        assert!(silent.answers(&members[0]) && !silent.is_healthy(&members[0]));
    }

    #[test]
    fn a_node_without_certificates_says_which_file_it_misses() {
        let root = tempfile::tempdir().unwrap();
        let told = format!("{:#}", EtcdGateway::open(root.path(), Distribution::K3s).unwrap_err());
        assert!(told.contains("/var/lib/rancher/k3s/server/tls/etcd/client.crt"), "{told}");
    }
}
