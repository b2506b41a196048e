//! The parts of a kubeconfig that name a cluster and a user of it (Kubernetes, "kubeconfig (v1)").

use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

/// A kubeconfig with one cluster, and at most one user: those that distributions write have no others.
#[derive(Deserialize)]
pub struct Kubeconfig {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: NamedServer,
}

/// Where the API is, and who signs for it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NamedServer {
    /// Empty where the reader does not need it and it was left out.
    #[serde(default)]
    pub server: String,
    pub certificate_authority: Option<PathBuf>,
    pub certificate_authority_data: Option<InlineFile>,
}

#[derive(Deserialize)]
struct NamedUser {
    user: ClientCertificate,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClientCertificate {
    pub client_certificate: Option<PathBuf>,
    pub client_certificate_data: Option<InlineFile>,
    pub client_key: Option<PathBuf>,
    pub client_key_data: Option<InlineFile>,
}

/// The content of a file in base64, in place of its path. It may be a key.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct InlineFile(String);

impl Kubeconfig {
    /// Reads YAML; none if it is no kubeconfig.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        serde_saphyr::from_str(text).ok()
    }

    #[must_use]
    pub fn cluster(&self) -> Option<&NamedServer> {
        self.clusters.first().map(|named| &named.cluster)
    }

    #[must_use]
    pub fn user(&self) -> Option<&ClientCertificate> {
        self.users.first().map(|named| &named.user)
    }
}

impl InlineFile {
    /// None if it is not base64.
    #[must_use]
    pub fn decode(&self) -> Option<Vec<u8>> {
        BASE64_STANDARD.decode(self.0.trim()).ok()
    }
}

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kubeconfig({:?})", self.cluster().map(|cluster| &cluster.server))
    }
}

impl std::fmt::Debug for NamedServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NamedServer({:?})", self.server)
    }
}

impl std::fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientCertificate({:?})", self.client_certificate)
    }
}

impl std::fmt::Debug for InlineFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InlineFile({} characters)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_has_paths_or_contents_and_shows_no_key() {
        let text = "clusters:\n- cluster: {server: 'https://192.0.2.10:6443', certificate-authority-data: cGVt}\n\
                    users:\n- user: {client-certificate: /a.pem, client-key-data: a2V5}\n";
        let kubeconfig = Kubeconfig::read(text).unwrap();
        let (cluster, user) = (kubeconfig.cluster().unwrap(), kubeconfig.user().unwrap());
        assert_eq!(cluster.certificate_authority_data.as_ref().unwrap().decode().unwrap(), b"pem");
        assert_eq!(user.client_certificate.as_deref().unwrap().to_str(), Some("/a.pem"));
        assert_eq!(user.client_key_data.as_ref().unwrap().decode().unwrap(), b"key");
        let shown = format!("{kubeconfig:?} {cluster:?} {user:?} {:?}", user.client_key_data);
        assert!(shown.contains("192.0.2.10") && !shown.contains("a2V5"), "{shown}");
        assert!(Kubeconfig::read("{}").is_some_and(|none| none.cluster().is_none() && none.user().is_none()));
        assert!(Kubeconfig::read("clusters: [{}]").is_none() && Kubeconfig::read("- ][").is_none());
    }
}
