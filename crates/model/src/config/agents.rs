//! The only secret of the cluster on a node without a control plane: the token of agents, never that of servers.
//!
//! With the token of servers anybody who takes a worker adds a server to the cluster, which gets every key of it.

use anyhow::Result;

use super::{Distribution, InstallConfig, Secret, cluster_secrets};
use base::failure::{Class, Failure};

impl InstallConfig {
    /// The token with which an agent joins. Where the document has that of servers only: with kubeadm what follows from it, which
    /// every cluster accepts that has no other token for agents. With RKE2 and K3s itself, for a cluster without a token for
    /// agents knows no other one.
    ///
    /// # Errors
    /// [`Class::Invalid`] if a token cannot be read.
    pub fn agent_credential(&self) -> Result<Option<Secret>> {
        let Some(token) = &self.token else { return Ok(self.kubernetes.agent_token.clone()) };
        match (&self.kubernetes.agent_token, self.kubernetes.distribution()) {
            (Some(agents), _) => Ok(Some(agents.clone())),
            (None, Distribution::Kubeadm) => match cluster_secrets::agent_token(token) {
                Ok(agents) => Ok(Some(agents)),
                Err(error) => Err(Failure::new(Class::Invalid, "`token` yields no agent token")
                    .because(error)
                    .hint("Set `kubernetes.agent_token` to that of the cluster and remove `token`.")
                    .into()),
            },
            (None, Distribution::Rke2 | Distribution::K3s) => Ok(Some(token.clone())),
        }
    }

    /// The document without the token of servers where the node is an agent; other nodes need theirs.
    ///
    /// # Errors
    /// Those of [`InstallConfig::agent_credential`].
    pub fn without_foreign_tokens(mut self) -> Result<Self> {
        if self.install.is_agent() {
            self.kubernetes.agent_token = self.agent_credential()?;
            self.token = None;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::cluster_secrets::ClusterSecrets;
    use crate::config::parse;

    const TOKEN: &str = "1b161e5c1fa7425e73043362938b98241b5f3f0c2f3c4a5d";

    fn agent(rest: &str, distribution: &str) -> InstallConfig {
        let text = format!(
            "{rest}\nserver_url: https://192.0.2.10\ninstall: {{mode: join, role: worker}}\n\
             kubernetes: {{distribution: {distribution}}}\n"
        );
        parse(&text, "f").unwrap()
    }

    /// Every key that servers make of a token.
    fn keys(token: &Secret) -> Vec<String> {
        let token = super::super::Token::read(token).unwrap();
        let made = ClusterSecrets::derive(token.password()).unwrap();
        vec![
            token.password().expose().to_owned(),
            made.bootstrap_token.expose().to_owned(),
            made.certificate_key.expose().to_owned(),
        ]
    }

    #[test]
    fn no_key_of_servers_follows_from_what_a_worker_of_kubeadm_keeps() {
        let pin = "ab".repeat(32);
        for token in [TOKEN.to_owned(), format!("K10{pin}::server:{TOKEN}")] {
            let node = agent(&format!("token: {token}"), "kubeadm").for_node().unwrap();
            assert_eq!(node.token, None);
            let kept = node.kubernetes.agent_token.clone().unwrap();
            let (servers, agents) = (keys(&Secret::new(token.as_str())), keys(&kept));
            assert!(servers.iter().all(|key| !agents.contains(key)));
            let document = node.to_yaml();
            assert!(servers.iter().all(|key| !document.contains(key)), "{document}");
            // The cluster registers the same secret for agents.
            let made = ClusterSecrets::derive(&Secret::new(TOKEN)).unwrap();
            assert_eq!(
                ClusterSecrets::derive(&made.agent_token).unwrap().bootstrap_token.expose(),
                agents[1]
            );
            assert_eq!(kept.expose().starts_with(&format!("K10{pin}::")), token.starts_with("K10"));
        }
    }

    #[test]
    fn a_worker_of_rke2_and_k3s_keeps_the_one_token_of_its_cluster_as_that_of_agents() {
        for distribution in ["rke2", "k3s"] {
            let node = agent(&format!("token: {TOKEN}"), distribution).for_node().unwrap();
            assert_eq!((node.token, node.kubernetes.agent_token), (None, Some(Secret::new(TOKEN))));
        }
    }

    #[test]
    fn servers_keep_their_token_and_a_document_of_an_agent_stays_as_it_is() {
        for role in ["management", "witness"] {
            let text = format!(
                "token: {TOKEN}\nserver_url: https://192.0.2.10\ninstall: {{mode: join, role: {role}}}\n"
            );
            let config = parse(&text, "f").unwrap();
            assert_eq!(config.for_node().unwrap(), config);
        }
        for distribution in ["kubeadm", "rke2", "k3s"] {
            let node = agent(&format!("token: {TOKEN}"), distribution).for_node().unwrap();
            assert_eq!(node.for_node().unwrap(), node);
            assert_eq!(parse(&node.to_yaml(), "node").unwrap(), node);
        }
    }
}
