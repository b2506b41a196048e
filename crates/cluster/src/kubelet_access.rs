//! The kubelet's access to its cluster, which the node uses for its own questions.
//!
//! RKE2 and K3s name files in the kubelet's kubeconfig, kubeadm has the authority in it (Kubernetes, "kubeconfig (v1)"). The
//! kubelet's certificate is renewed in its file, so the access is read anew for each connection.

use std::fs;
use std::path::Path;
use std::time::Duration;

use reqwest::blocking::Client;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Identity};

use crate::kubernetes::kubeconfig::{InlineFile, Kubeconfig};
use machine::paths::below;

/// A client with the kubelet's certificate, and the server that it asks.
#[derive(Debug)]
pub(super) struct KubeletAccess {
    pub(super) client: Client,
    /// Without a slash at its end.
    pub(super) server: String,
}

impl KubeletAccess {
    /// The access at `kubeconfig`, whose paths are below `root` too. A request ends after `timeout`.
    ///
    /// # Errors
    /// What is wrong, a clause without any part of a key.
    pub(super) fn read(root: &Path, kubeconfig: &str, timeout: Duration) -> Result<Self, String> {
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
        let server = cluster.server.trim_end_matches('/').to_owned();
        Ok(Self { client: client(&authorities, &pem, timeout)?, server })
    }
}

/// A client that trusts `authorities` alone and shows the certificate in `pem`, which has the key too. Never by way of a proxy: what
/// it asks is in the cluster.
///
/// # Errors
/// That the certificates cannot be used, without the cause, which could quote the key.
pub(super) fn client(authorities: &[u8], pem: &[u8], timeout: Duration) -> Result<Client, String> {
    let unusable = |_| "the certificates of the node cannot be used".to_owned();
    let identity = Identity::from_pem(pem).map_err(unusable)?;
    let authorities = Certificate::from_pem_bundle(authorities).map_err(unusable)?;
    // The provider is global to the process; it does not matter if it is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().no_proxy().timeout(timeout).redirect(Policy::none());
    builder.tls_certs_only(authorities).identity(identity).build().map_err(unusable)
}

/// What stands in the file, or in the kubeconfig itself.
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
