//! Questions to the cluster: whether it answers at its address, and the state of this node in it.
//!
//! The node asks like its kubelet, with the kubelet's certificate, through the load balancer that the service runs on the node; a
//! kubelet may read the object of its own node (node authorizer of Kubernetes).

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::blocking::{Client, ClientBuilder, Response};
use reqwest::redirect::Policy;

use crate::kubelet_access::KubeletAccess;
use crate::kubernetes::node::{Node, NodeList};
use machine::paths::below;
use transfer::download::reason;

/// For one question, in all.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer in bytes; a node with thousands of images in its status has some hundred kilobytes.
const ANSWER_BYTES_MAX: u64 = 8 << 20;
/// The same for a list of all nodes.
const LIST_BYTES_MAX: u64 = 512 << 20;

/// The state of the node in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The service has not got its certificates yet, so the node cannot ask.
    NoCredentials,
    /// There is no usable answer; the reason.
    Unknown(String),
    /// The cluster has no node of this name.
    Absent(String),
    /// The node is registered and not ready.
    NotReady {
        name: String,
        /// The condition's own message.
        why: String,
    },
    Ready {
        name: String,
    },
}

/// A request without credentials. The client is made once: the console of a node asks as long as the machine runs.
fn get(url: &str) -> reqwest::Result<Response> {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    let client = match CLIENT.get() {
        Some(client) => client,
        None => {
            let client = builder().tls_danger_accept_invalid_certs(true).pool_max_idle_per_host(0).build()?;
            CLIENT.get_or_init(|| client)
        }
    };
    client.get(url).send()
}

/// Asks the distribution's own service at `url` for the `page` that tells whether it is there. Its certificate does not matter here: nothing secret is
/// sent, and the service of this node checks it.
pub(crate) fn ping(url: &str, page: &str) -> Result<(), String> {
    match get(&format!("{url}{page}")) {
        Ok(answer) if answer.status() == StatusCode::OK => Ok(()),
        Ok(answer) => Err(format!(
            "{url} answers {}, like another service or one that is still starting",
            answer.status()
        )),
        Err(error) => Err(unanswered(url, &error)),
    }
}

/// Whether there is a web page at `url`, or a redirect to one: an ingress without one answers 404.
pub fn serves(url: &str) -> bool {
    get(url).is_ok_and(|answer| answer.status().is_success() || answer.status().is_redirection())
}

/// The status and the text that `url` of this machine answers with.
pub(crate) fn get_text(url: &str) -> Result<(StatusCode, String), String> {
    let answer = get(url).map_err(|error| unanswered(url, &error))?;
    let status = answer.status();
    let bytes = body(answer).map_err(|error| format!("{url} broke off: {error}"))?;
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

/// The state of the node `name`, asked with the kubelet's credentials at `kubeconfig` below `root`.
pub(super) fn node(root: &Path, kubeconfig: &str, name: &str) -> Registration {
    if !below(root, kubeconfig).exists() {
        return Registration::NoCredentials;
    }
    match cluster_node(root, kubeconfig, name) {
        Ok(Some(node)) => registration(&node),
        Ok(None) => Registration::Absent(name.to_owned()),
        Err(why) => Registration::Unknown(why),
    }
}

/// The node `name` as its cluster has it, asked as [`node`] does.
pub(crate) fn cluster_node(root: &Path, kubeconfig: &str, name: &str) -> Result<Option<Node>, String> {
    let KubeletAccess { client, server } = KubeletAccess::read(root, kubeconfig, REQUEST_TIMEOUT)?;
    let url = format!("{server}/api/v1/nodes/{name}");
    let server = format!("the API at {server}");
    let answer = client.get(url).send().map_err(|error| unanswered(&server, &error))?;
    match answer.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        status => return Err(format!("{server} answers {status}")),
    }
    let bytes = body(answer).map_err(|error| format!("{server} broke off: {error}"))?;
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|_| format!("{server} returned something other than a node"))
}

/// All nodes of the cluster, for an access that may see them.
pub(crate) fn cluster_nodes(root: &Path, kubeconfig: &str) -> Result<Vec<Node>, String> {
    let KubeletAccess { client, server } = KubeletAccess::read(root, kubeconfig, REQUEST_TIMEOUT)?;
    let url = format!("{server}/api/v1/nodes?resourceVersion=0");
    let server = format!("the API at {server}");
    let answer = client.get(url).send().map_err(|error| unanswered(&server, &error))?;
    if answer.status() != StatusCode::OK {
        return Err(format!("{server} does not tell its nodes: {}", answer.status()));
    }
    // A list may be long: a node has some ten kilobytes.
    let nodes: NodeList = serde_json::from_reader(std::io::Read::take(answer, LIST_BYTES_MAX))
        .map_err(|_| format!("{server} returned something other than nodes"))?;
    Ok(nodes.items)
}

/// The version of the API server at `url`, asked with the access at `kubeconfig`.
pub(crate) fn server_version(root: &Path, kubeconfig: &str, url: &str) -> Result<String, String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ServerVersion {
        git_version: String,
    }
    let KubeletAccess { client, .. } = KubeletAccess::read(root, kubeconfig, REQUEST_TIMEOUT)?;
    let answer = client.get(format!("{url}/version")).send().map_err(|error| unanswered(url, &error))?;
    if answer.status() != StatusCode::OK {
        return Err(format!("{url} does not tell its version: {}", answer.status()));
    }
    let bytes = body(answer).map_err(|error| format!("{url} broke off: {error}"))?;
    let version: ServerVersion = serde_json::from_slice(&bytes)
        .map_err(|_| format!("{url} returned something other than a version"))?;
    Ok(version.git_version)
}

/// Whether the API server at `url` says to this node's kubelet that it is ready: RKE2 and K3s tell nobody else.
pub(crate) fn ready_as_kubelet(root: &Path, kubeconfig: &str, url: &str) -> Result<(), String> {
    let KubeletAccess { client, .. } = KubeletAccess::read(root, kubeconfig, REQUEST_TIMEOUT)?;
    let answer = client.get(format!("{url}/readyz")).send().map_err(|error| unanswered(url, &error))?;
    match answer.status() {
        StatusCode::OK => Ok(()),
        status => Err(format!("{url} is not ready: it answers {status}")),
    }
}

fn unanswered(who: &str, error: &reqwest::Error) -> String {
    match error.is_timeout() {
        true => format!("{who} does not answer in time"),
        false => format!("{who} does not answer: {}", reason(error)),
    }
}

fn body(answer: Response) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(answer, ANSWER_BYTES_MAX), &mut bytes)?;
    Ok(bytes)
}

/// The questions go to this node and its cluster, never through a proxy.
fn builder() -> ClientBuilder {
    // The provider is global to the process; it does not matter if it is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().timeout(REQUEST_TIMEOUT).redirect(Policy::none())
}

/// What the node's own condition says.
fn registration(node: &Node) -> Registration {
    let name = node.metadata.name.clone();
    match node.ready() {
        Some(ready) if ready.holds() => Registration::Ready { name },
        Some(ready) => {
            Registration::NotReady { name, why: super::known_errors::without_tokens(&ready.message) }
        }
        None => Registration::NotReady { name, why: "the kubelet has not reported its state yet".into() },
    }
}
