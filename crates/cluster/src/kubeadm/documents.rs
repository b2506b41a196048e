//! kubeadm's documents as it gets them: those of `installer apply`, with the secrets and with what the OS image knows.

use std::net::Ipv4Addr;

use anyhow::Result;
use serde_json::{Value, json};

use crate::configuration::AGENTS;
use base::digest::Digest;
use base::failure::{Class, Failure};
use formats::oci::ImageReference;
use model::config::cluster_secrets::ClusterSecrets;
use model::kubernetes::{KubernetesVersion, UpstreamImages};

/// TCP, of the API server of a node.
const API_PORT: u16 = 6443;

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
/// `address` is the one by which the node is reached, where kubeadm cannot find it.
pub(super) fn complete(
    text: &str,
    secrets: &JoinSecrets,
    (version, images): (&KubernetesVersion, &UpstreamImages),
    address: Option<Ipv4Addr>,
) -> Result<String> {
    let documents = serde_saphyr::from_multiple::<Value>(text).map_err(|_| {
        Failure::new(Class::Invalid, "a document for kubeadm is not YAML")
            .hint("Write it anew: installer apply")
    })?;
    let documents = documents.into_iter().map(|mut document| {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        if let Some(address) = address.filter(|_| kind == "InitConfiguration" || kind == "JoinConfiguration")
        {
            place_at(&mut document, address);
        }
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

/// Adds the address of the node, unless the document has one.
fn place_at(document: &mut Value, address: Ipv4Addr) {
    let server = match document["kind"] == "InitConfiguration" {
        true => Some(&mut *document),
        false => document.get_mut("controlPlane"),
    };
    if let Some(server) = server.filter(|server| server.get("localAPIEndpoint").is_none()) {
        server["localAPIEndpoint"] = json!({ "advertiseAddress": address, "bindPort": API_PORT });
    }
    let arguments = &mut document["nodeRegistration"]["kubeletExtraArgs"];
    if arguments.is_null() {
        *arguments = json!([{ "name": "node-ip", "value": address }]);
    }
}

fn init(document: &mut Value, secrets: &JoinSecrets) {
    let servers = bootstrap_token(&secrets.own, "system:bootstrappers:kubeadm:default-node-token");
    let agents = secrets.agents.iter().map(|agents| bootstrap_token(agents, AGENTS));
    document["bootstrapTokens"] = std::iter::once(servers).chain(agents).collect();
    document["certificateKey"] = json!(secrets.own.certificate_key.expose());
}

/// A token that does not expire: nodes may join after weeks.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_placed_where_its_document_does_not_say_it() {
        let address = Ipv4Addr::new(10, 0, 2, 15);
        let placed = |text: &str| {
            let mut document: Value = serde_json::from_str(text).unwrap();
            place_at(&mut document, address);
            document
        };
        let endpoint = json!({ "advertiseAddress": "10.0.2.15", "bindPort": 6443 });
        let init = placed(r#"{"kind": "InitConfiguration"}"#);
        assert_eq!(init["localAPIEndpoint"], endpoint);
        let server = placed(r#"{"kind": "JoinConfiguration", "controlPlane": {}}"#);
        assert_eq!(server["controlPlane"]["localAPIEndpoint"], endpoint);
        let agent = placed(r#"{"kind": "JoinConfiguration", "nodeRegistration": {"name": "a"}}"#);
        assert!(agent.get("controlPlane").is_none() && agent["nodeRegistration"]["name"] == "a");
        for document in [init, server, agent] {
            let arguments = &document["nodeRegistration"]["kubeletExtraArgs"];
            assert_eq!(*arguments, json!([{ "name": "node-ip", "value": "10.0.2.15" }]));
        }
        let fixed = placed(
            r#"{"kind": "InitConfiguration", "localAPIEndpoint": {"advertiseAddress": "192.0.2.11"}}"#,
        );
        assert_eq!(fixed["localAPIEndpoint"]["advertiseAddress"], "192.0.2.11");
    }
}
