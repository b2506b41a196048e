//! kubeadm's documents as it gets them: those of `installer apply`, with the secrets and with what the OS image knows.

use anyhow::Result;
use serde_json::{Value, json};

use crate::node::cluster::AGENTS;
use base::digest::Digest;
use base::failure::{Class, Failure};
use formats::oci::ImageReference;
use model::config::cluster_secrets::ClusterSecrets;
use model::kubernetes::{KubernetesVersion, UpstreamImages};

/// What a node proves itself with, and what it takes for proof.
#[derive(Debug)]
pub(super) struct JoinSecrets {
    /// From the token of servers; on an agent from that of agents.
    pub(super) own: ClusterSecrets,
    /// Of the agents, on the first node.
    pub(super) agents: Option<ClusterSecrets>,
    /// SHA-256 of the public key of the cluster's authority, where the token names it.
    pub(super) authority: Option<Digest>,
}

/// Adds what is missing to documents of several kinds, and returns the file for kubeadm.
pub(super) fn complete(
    text: &str,
    secrets: &JoinSecrets,
    (version, images): (&KubernetesVersion, &UpstreamImages),
) -> Result<String> {
    let documents = serde_saphyr::from_multiple::<Value>(text).map_err(|_| {
        Failure::new(Class::Invalid, "a document for kubeadm is not YAML")
            .hint("Write it anew: installer apply")
    })?;
    let documents = documents.into_iter().map(|mut document| {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "InitConfiguration" => init(&mut document, secrets),
            "JoinConfiguration" => join(&mut document, secrets),
            // kubeadm would ask the internet for the newest version.
            "ClusterConfiguration" => {
                document["kubernetesVersion"] = json!(version);
                name_images(&mut document, images);
            }
            _ => {}
        }
        document.to_string()
    });
    Ok(documents.collect::<Vec<_>>().join("\n---\n"))
}

fn init(document: &mut Value, secrets: &JoinSecrets) {
    let servers = bootstrap_token(&secrets.own, "system:bootstrappers:kubeadm:default-node-token");
    let agents = secrets.agents.iter().map(|agents| bootstrap_token(agents, AGENTS));
    document["bootstrapTokens"] = std::iter::once(servers).chain(agents).collect();
    document["certificateKey"] = json!(secrets.own.certificate_key.expose());
}

/// A token that does not expire: nodes join after weeks, too.
fn bootstrap_token(secrets: &ClusterSecrets, group: &str) -> Value {
    json!({
        "token": secrets.bootstrap_token.expose(),
        "ttl": "0s",
        "usages": ["signing", "authentication"],
        "groups": [group],
    })
}

fn join(document: &mut Value, secrets: &JoinSecrets) {
    let discovery = &mut document["discovery"]["bootstrapToken"];
    discovery["token"] = json!(secrets.own.bootstrap_token.expose());
    // Without a pin, the cluster still has to prove that it knows the token: what it says of itself is signed with it.
    match secrets.authority {
        Some(authority) => discovery["caCertHashes"] = json!([format!("sha256:{authority}")]),
        None => discovery["unsafeSkipCAVerification"] = json!(true),
    }
    if document.get("controlPlane").is_some() {
        document["controlPlane"]["certificateKey"] = json!(secrets.own.certificate_key.expose());
    }
}

/// Gives a ClusterConfiguration the images of the OS image: kubeadm would ask for other tags.
pub(crate) fn name_images(document: &mut Value, images: &UpstreamImages) {
    let image = |image: &ImageReference| {
        let (registry, path) = (image.repository().registry(), image.repository().path());
        let repository = match path.rsplit_once('/') {
            Some((directory, _)) => format!("{registry}/{directory}"),
            None => registry.to_owned(),
        };
        json!({ "imageRepository": repository, "imageTag": image.tag().unwrap_or_default() })
    };
    document["dns"] = image(&images.coredns);
    let etcd = image(&images.etcd);
    for key in ["imageRepository", "imageTag"] {
        document["etcd"]["local"][key] = etcd[key].clone();
    }
}
