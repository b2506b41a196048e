//! The API server of a cluster of kubeadm, for nodes that join: ConfigMap `cluster-info` with its signatures without a login,
//! everything else by the rights that kubeadm gives the groups of bootstrap tokens.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use serde_json::{Value, json};

use crate::api_exchange::{Reply, Request};

/// Stands for the encrypted keys of a real cluster, which must never be requested.
pub const KEYS: &str = "hush-of-authorities";

/// A cluster and its bootstrap tokens.
#[derive(Clone, Debug, Default)]
pub struct KubeadmCluster {
    pub tokens: Vec<BootstrapToken>,
    /// Whether the keys of its CAs are still available for further servers.
    pub keeps_keys: bool,
    /// Whether those who join may list its nodes.
    pub lists_nodes: bool,
    /// The version that kubeadm-config names, if it is not the server's.
    pub version: Option<String>,
    /// Its networks of pods and services.
    pub networks: Option<(String, String)>,
    /// Replaces the kubeconfig in the ConfigMap; signed as well.
    pub kubeconfig: Option<String>,
}

#[derive(Clone, Debug)]
pub struct BootstrapToken {
    /// `ID.SECRET`, the login of joining nodes.
    pub token: String,
    /// Signs in place of the token's own secret.
    pub signs_with: Option<String>,
    /// Whether it is in the group whose nodes may become servers.
    pub servers: bool,
    /// Whether it is accepted: a deleted token stays in the ConfigMap for a moment.
    pub valid: bool,
}

impl BootstrapToken {
    /// A token for all roles, or for agents only.
    #[must_use]
    pub fn new(token: &str, servers: bool) -> Self {
        Self { token: token.to_owned(), signs_with: None, servers, valid: true }
    }

    /// Its entry in `cluster-info`.
    fn signature(&self, content: &str) -> (String, String) {
        let (id, secret) = self.token.split_once('.').unwrap_or_default();
        let secret = self.signs_with.as_deref().unwrap_or(secret);
        let header = BASE64_URL_SAFE_NO_PAD.encode(json!({ "alg": "HS256", "kid": id }).to_string());
        let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
        (format!("jws-kubeconfig-{id}"), format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(tag)))
    }
}

impl KubeadmCluster {
    pub(crate) fn reply(&self, request: &Request, authority: &[u8], version: &str, nodes: &[Value]) -> Reply {
        match request.path.as_str() {
            "/version" => return Reply::json(&json!({ "major": "1", "gitVersion": version })),
            "/livez" | "/readyz" => return Reply::text(200, "ok"),
            "/api/v1/namespaces/kube-public/configmaps/cluster-info" => return self.info(authority),
            _ => {}
        }
        let bearer = request.authorization.strip_prefix("Bearer ");
        let token = self.tokens.iter().find(|token| bearer == Some(token.token.as_str()) && token.valid);
        let Some(token) = token else {
            let status = if bearer.is_some() { 401 } else { 403 };
            return Reply::error(status, "not for you");
        };
        match request.path.as_str() {
            "/api/v1/namespaces/kube-system/configmaps/kubeadm-config" => {
                let version = self.version.as_deref().unwrap_or(version);
                let networks = self.networks.as_ref().map(|(pods, services)| {
                    format!("networking:\n  podSubnet: {pods}\n  serviceSubnet: {services}\n")
                });
                let document = format!(
                    "kind: ClusterConfiguration\nkubernetesVersion: {version}\n{}",
                    networks.unwrap_or_default()
                );
                Reply::json(&json!({ "kind": "ConfigMap", "data": { "ClusterConfiguration": document } }))
            }
            "/api/v1/namespaces/kube-system/secrets/kubeadm-certs" => self.keys(request, token),
            "/api/v1/nodes" if !self.lists_nodes => Reply::error(403, "nodes is forbidden"),
            "/api/v1/nodes" => Reply::json(&json!({ "kind": "NodeList", "items": nodes })),
            path => {
                let name = path.strip_prefix("/api/v1/nodes/");
                let known = nodes.iter().find(|node| node["metadata"]["name"].as_str() == name);
                known.map_or_else(|| Reply::error(404, "not found"), Reply::json)
            }
        }
    }

    fn info(&self, authority: &[u8]) -> Reply {
        let own = || {
            let authority = BASE64_STANDARD.encode(authority);
            format!(
                "kind: Config\nclusters:\n- cluster:\n    certificate-authority-data: {authority}\n  name: \"\"\n"
            )
        };
        let kubeconfig = self.kubeconfig.clone().unwrap_or_else(own);
        let mut data: serde_json::Map<String, Value> = serde_json::Map::new();
        data.extend(
            self.tokens.iter().map(|token| token.signature(&kubeconfig)).map(|(key, jws)| (key, json!(jws))),
        );
        data.insert("kubeconfig".to_owned(), json!(kubeconfig));
        Reply::json(&json!({ "kind": "ConfigMap", "data": data }))
    }

    fn keys(&self, request: &Request, token: &BootstrapToken) -> Reply {
        match (token.servers, self.keeps_keys) {
            (false, _) => Reply::error(403, "secrets \"kubeadm-certs\" is forbidden"),
            (true, false) => Reply::error(404, "secrets \"kubeadm-certs\" not found"),
            (true, true) if request.accept.contains("as=PartialObjectMetadata") => Reply::json(
                &json!({ "kind": "PartialObjectMetadata", "metadata": { "name": "kubeadm-certs" } }),
            ),
            (true, true) => Reply::json(&json!({ "kind": "Secret", "data": { "ca.key": KEYS } })),
        }
    }
}
