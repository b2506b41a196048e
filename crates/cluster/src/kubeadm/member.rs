//! The node that joins: its document, its name, its secrets.

use std::path::Path;

use anyhow::Result;

use super::documents::JoinSecrets;
use super::steps::JoinedPart;
use crate::configuration::part_of;
use crate::kept_version::image;
use base::failure::{Class, Failure};
use machine::installed_node::InstalledNode;
use model::config::cluster_secrets::ClusterSecrets;
use model::config::redact::Secrets;
use model::config::{Distribution, InstallConfig, Mode, Secret, Token};
use model::kubernetes::{KUBERNETES_RELEASE, KubernetesVersion, UpstreamImages};

#[allow(missing_debug_implementations)]
pub(super) struct JoiningNode {
    pub(super) part: JoinedPart,
    pub(super) name: String,
    /// Cordoned until somebody allows pods.
    pub(super) cordoned: bool,
    pub(super) version: KubernetesVersion,
    pub(super) images: UpstreamImages,
    pub(super) config: InstallConfig,
}

impl JoiningNode {
    /// The node at `root`; none if no cluster is joined by kubeadm there. `say` receives which values of its document are ignored.
    pub(super) fn read(root: &Path, say: &mut dyn FnMut(&str)) -> Result<Option<Self>> {
        let node = InstalledNode::open(root)?;
        node.warn(say);
        let Some(part) = part_of(&node.config) else { return Ok(None) };
        if node.config.kubernetes.distribution() != Distribution::Kubeadm {
            return Ok(None);
        }
        let name = node.name()?;
        let cordoned = node.config.install.cordoned && node.config.install.mode == Mode::Join;
        let absent = |why: anyhow::Error| {
            Failure::new(Class::Invalid, "this OS image brings no Kubernetes for kubeadm").because(why).hint(
                "Install from a medium whose image definition says `kubernetes: {distribution: kubeadm}`.",
            )
        };
        let release = image::read(root).map_err(absent)?;
        let release = release.and_then(|release| release.images.map(|images| (release.version, images)));
        let (version, images) =
            release.ok_or_else(|| absent(anyhow::anyhow!("{KUBERNETES_RELEASE} names no images")))?;
        Ok(Some(Self { part: part.into(), name, cordoned, version, images, config: node.config }))
    }

    /// The secrets of the cluster. Takes some tenths of a second for each token.
    pub(super) fn secrets(&self) -> Result<JoinSecrets> {
        let (own, key) = match self.part {
            JoinedPart::Agent => (self.config.agent_credential()?, "kubernetes.agent_token"),
            _ => (self.config.token.clone(), "token"),
        };
        let own = own.ok_or_else(|| {
            Failure::new(Class::Invalid, "the node document has no token")
                .hint(format!("Write the cluster's token into `{key}` of /oem/node.yaml."))
        })?;
        let (password, authority) = read(&own)?;
        let own = ClusterSecrets::derive(&password)?;
        let agents = match (self.part, &self.config.kubernetes.agent_token) {
            (JoinedPart::First, Some(chosen)) => Some(ClusterSecrets::derive(&read(chosen)?.0)?),
            (JoinedPart::First, None) => Some(ClusterSecrets::derive(&own.agent_token)?),
            _ => None,
        };
        Ok(JoinSecrets { own, agents, authority })
    }

    /// The texts to hide in messages.
    pub(super) fn redaction(&self, secrets: Option<&JoinSecrets>) -> Secrets {
        let mut hidden = Secrets::default();
        hidden.add(&self.config);
        for secrets in secrets.into_iter().flat_map(|secrets| [Some(&secrets.own), secrets.agents.as_ref()]) {
            let derived = secrets.into_iter().flat_map(|secrets| {
                [
                    secrets.bootstrap_token.expose(),
                    secrets.signing_key(),
                    secrets.certificate_key.expose(),
                    secrets.agent_token.expose(),
                ]
            });
            hidden.add_texts(derived);
        }
        hidden
    }
}

/// The password in a token, and the authority that the token names.
fn read(token: &Secret) -> Result<(Secret, Option<base::digest::Digest>)> {
    let token =
        Token::read(token).map_err(|wrong| Failure::new(Class::Invalid, format!("the token {wrong}")))?;
    Ok((token.password().clone(), token.authority))
}
