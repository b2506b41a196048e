//! The API server, asked with the access in a kubeconfig of this node: that of its kubelet, or of an administrator.
//!
//! A kubelet may read and annotate the object of its own node, and make events (node authorizer of Kubernetes). RKE2 and K3s name
//! files in its kubeconfig, kubeadm has the authority in it (Kubernetes, "kubeconfig (v1)"). Its certificate is renewed in its
//! file, so the access is read anew for each connection.

use std::fs;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::Duration;

use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::http;
use crate::kubernetes::kubeconfig::{InlineFile, Kubeconfig};
use crate::kubernetes::node::{Node, NodeList};
use machine::paths::below;

/// For one request, in all.
const TIMEOUT: Duration = Duration::from_secs(5);
/// In bytes; a node with thousands of images in its status has some hundred kilobytes.
const NODE_BYTES_MAX: u64 = 8 << 20;
/// In bytes; a node has some ten kilobytes.
const LIST_BYTES_MAX: u64 = 512 << 20;

/// In bytes; those of an API server with many kinds have some ten megabytes.
const METRICS_BYTES_MAX: u64 = 128 << 20;

/// Errors are clauses without any part of a key.
#[derive(Debug)]
pub(crate) struct KubeApi {
    client: Client,
    /// Without a slash at its end.
    url: String,
    /// As errors name it.
    name: String,
}

impl KubeApi {
    /// The access at `kubeconfig`, whose paths are below `root` too.
    pub(crate) fn open(root: &Path, kubeconfig: &str) -> Result<Self, String> {
        Self::open_for(root, kubeconfig, TIMEOUT)
    }

    /// The same, for answers that may take so long.
    pub(crate) fn open_for(root: &Path, kubeconfig: &str, timeout: Duration) -> Result<Self, String> {
        let path = below(root, kubeconfig);
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        let config = Kubeconfig::read(&text)
            .ok_or_else(|| format!("{} is not a kubelet's kubeconfig", path.display()))?;
        let (cluster, user) = config
            .cluster()
            .filter(|cluster| !cluster.server.is_empty())
            .zip(config.user())
            .ok_or_else(|| format!("{} names no server or no user", path.display()))?;
        let authorities = content(
            root,
            cluster.certificate_authority.as_deref(),
            cluster.certificate_authority_data.as_ref(),
        )?;
        let mut pem =
            content(root, user.client_certificate.as_deref(), user.client_certificate_data.as_ref())?;
        pem.push(b'\n');
        pem.extend(content(root, user.client_key.as_deref(), user.client_key_data.as_ref())?);
        let url = cluster.server.trim_end_matches('/').to_owned();
        let name = format!("the API at {url}");
        Ok(Self { client: http::node_client(&authorities, &pem, timeout)?, url, name })
    }

    /// The same access at another server of the cluster.
    pub(crate) fn at(self, url: &str) -> Self {
        Self { url: url.to_owned(), name: url.to_owned(), ..self }
    }

    /// The node `name`; none if the cluster has none of this name.
    pub(crate) fn node(&self, name: &str) -> Result<Option<Node>, String> {
        let answer = self.get(&format!("/api/v1/nodes/{name}"))?;
        match answer.status() {
            StatusCode::OK => self.parsed(answer, NODE_BYTES_MAX, "a node").map(Some),
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(format!("{} answers {status}", self.name)),
        }
    }

    /// All nodes, for an access that may see them.
    pub(crate) fn nodes(&self) -> Result<NodeList, String> {
        self.parsed(self.list("resourceVersion=0")?, LIST_BYTES_MAX, "nodes")
    }

    /// The changes of the nodes since this version of their list, a line of JSON each. The server ends the answer after so many
    /// seconds.
    pub(crate) fn node_changes(&self, version: &str, seconds: u64) -> Result<impl Read + use<>, String> {
        self.list(&format!(
            "watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}"
        ))
    }

    fn list(&self, query: &str) -> Result<Response, String> {
        let answer = self.get(&format!("/api/v1/nodes?{query}"))?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            status => Err(format!("{} does not list its nodes: {status}", self.name)),
        }
    }

    /// The version of the API server.
    pub(crate) fn version(&self) -> Result<String, String> {
        let answer = self.get("/version")?;
        if answer.status() != StatusCode::OK {
            return Err(format!("{} does not give its version: {}", self.name, answer.status()));
        }
        let version: Value = self.parsed(answer, NODE_BYTES_MAX, "a version")?;
        let text = version["gitVersion"].as_str().map(str::to_owned);
        text.ok_or_else(|| format!("{} returned something other than a version", self.name))
    }

    /// The metrics of the API server, in the text format of Prometheus, for an access that may see them.
    pub(crate) fn metrics(&self) -> Result<String, String> {
        let answer = self.get("/metrics")?;
        match answer.status() {
            StatusCode::OK => {
                let bytes = http::body(answer, METRICS_BYTES_MAX)
                    .map_err(|error| format!("{} {error}", self.name))?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            status => Err(format!("{} does not show its metrics: {status}", self.name)),
        }
    }

    /// Whether the API server is ready: RKE2 and K3s tell only those who log in.
    pub(crate) fn is_ready(&self) -> Result<(), String> {
        match self.get("/readyz")?.status() {
            StatusCode::OK => Ok(()),
            status => Err(format!("{} is not ready: it answers {status}", self.name)),
        }
    }

    /// Changes an object by a JSON merge patch (RFC 7386).
    pub(crate) fn patch(&self, path: &str, patch: &Value) -> Result<(), String> {
        self.write(Method::PATCH, path, "application/merge-patch+json", patch)
    }

    pub(crate) fn create(&self, path: &str, object: &Value) -> Result<(), String> {
        self.write(Method::POST, path, "application/json", object)
    }

    fn write(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<(), String> {
        let request = self.request(method, path).header(CONTENT_TYPE, kind).body(body.to_string());
        match self.send(request)?.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("{} answers {status}", self.name)),
        }
    }

    fn get(&self, path: &str) -> Result<Response, String> {
        self.send(self.request(Method::GET, path))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    fn send(&self, request: RequestBuilder) -> Result<Response, String> {
        http::send(request).map_err(|error| format!("{} {error}", self.name))
    }

    fn parsed<T: DeserializeOwned>(&self, answer: Response, max: u64, what: &str) -> Result<T, String> {
        let parsed = serde_json::from_reader(BufReader::new(answer.take(max)));
        parsed.map_err(|error| match error.is_io() {
            true => format!("{} ended its answer early: {error}", self.name),
            false => format!("{} returned something other than {what}", self.name),
        })
    }
}

/// The content of the file, or what the kubeconfig has in its place.
fn content(root: &Path, file: Option<&Path>, data: Option<&InlineFile>) -> Result<Vec<u8>, String> {
    match (file, data) {
        (_, Some(data)) => data
            .decode()
            .ok_or_else(|| "the kubelet's kubeconfig has certificates that are not base64".to_owned()),
        (Some(file), None) => {
            let path = below(root, &file.to_string_lossy());
            fs::read(&path).map_err(|error| unreadable(&path, &error))
        }
        (None, None) => Err("the kubelet's kubeconfig has no certificates".to_owned()),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("reading {}: {error}", path.display())
}
