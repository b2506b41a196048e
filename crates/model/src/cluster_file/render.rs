//! The document of each node as text. The same file gives the same bytes.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};

use super::document::{ClusterFile, KeyGroup};
use super::layers::ClusterNode;
use super::rules::own_cards;
use crate::config::cluster_secrets;
use crate::config::redact;
use crate::config::{Mode, Role, Secret};
use base::digest::Digest;

/// The document of one node, and what finds it.
#[derive(Clone)]
pub struct RenderedDocument {
    pub entry: DocumentRecord,
    /// The document. It holds secrets: files with it have mode 0600.
    pub text: String,
    pub(super) value: Value,
}

/// The document holds secrets, so that only the record of it is shown.
impl fmt::Debug for RenderedDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderedDocument").field("entry", &self.entry).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct DocumentRecord {
    pub hostname: String,
    pub file: String,
    /// SHA-256 of the file; fits `install.config_sha256`.
    pub sha256: String,
    pub mode: Mode,
    pub role: Role,
    pub pool: Option<String>,
    pub template: Option<String>,
    /// Its static address in the management network.
    pub ip: Option<std::net::Ipv4Addr>,
    /// The hardware addresses of its cards, as far as the file knows them, in small letters.
    pub macs: Vec<String>,
}

/// The token of agents that follows from that of the servers, where the file gives none of its own: each document is whole, and
/// that of an agent must not have the token of servers. None where the file only says where the token is.
///
/// # Errors
/// If the token cannot be read.
pub(super) fn derived_agent_token(file: &ClusterFile) -> Result<Option<Secret>> {
    let shared = file.shared_config();
    let token = shared.token.filter(|_| shared.kubernetes.agent_token.is_none());
    token.as_ref().map(cluster_secrets::agent_token).transpose()
}

/// Gives a document the derived token of agents: to agents in place of that of servers, to servers beside it.
fn put_agent_token(value: &mut Value, agents: &Secret, is_agent: bool) {
    let Some(document) = value.as_object_mut() else { return };
    if is_agent {
        document.remove("token");
    }
    let kubernetes = document.entry("kubernetes").or_insert_with(|| Value::Object(Map::new()));
    if let Some(kubernetes) = kubernetes.as_object_mut() {
        kubernetes.insert("agent_token".to_owned(), agents.expose().into());
    }
}

/// The document of a node of a file without mistakes; `agents` is [`derived_agent_token`].
#[expect(clippy::expect_used, reason = "a node whose parts are no configuration is a mistake of the file")]
pub(super) fn document(file: &ClusterFile, node: &ClusterNode, agents: Option<&Secret>) -> RenderedDocument {
    let mut value = node.merged.value();
    let config = node.config.clone().expect("the file has no mistakes");
    if let Some(agents) = agents {
        put_agent_token(&mut value, agents, config.install.is_agent());
    }
    let pool = file.pools[node.pool].name.as_ref().map(ToString::to_string);
    let from = match &node.template {
        Some(template) => format!(", made from the template `{template}`"),
        None => String::new(),
    };
    let text = format!(
        "# {} of the cluster `{}`, in the pool `{}`{from}.\n\
         # `installer render` has written this. Change the cluster file, not this document.\n{}",
        node.name,
        file.name(),
        pool.as_deref().unwrap_or_default(),
        yaml(&value)
    );
    let entry = DocumentRecord {
        hostname: node.name.clone(),
        file: format!("{}.yaml", node.name),
        sha256: Digest::of(text.as_bytes()).to_string(),
        mode: config.install.mode,
        role: config.install.role,
        pool,
        template: node.template.clone(),
        ip: config.install.management_interface.as_ref().and_then(|network| network.ip),
        macs: own_cards(&config).into_iter().map(|(_, mac)| mac).collect(),
    };
    RenderedDocument { entry, text, value }
}

/// The document for reading: as YAML and as a value, both without secrets.
#[must_use]
pub fn shown(document: &RenderedDocument) -> (String, Value) {
    let mut value = document.value.clone();
    redact::hide(&mut value);
    let head =
        "# For reading: secrets are hidden. `installer render -o DIR` writes documents that install.\n";
    (format!("{head}{}", yaml(&value)), value)
}

/// The keys that come first in a document, in their order.
const FIRST: [&str; 10] = [
    "scheme_version",
    "server_url",
    "token",
    "token_file",
    "token_url",
    "sans",
    "system_settings",
    "registries",
    "os",
    "install",
];

/// The document as YAML, what it is about before the rest.
fn yaml(value: &Value) -> String {
    let mut keys: Vec<_> = value.as_object().into_iter().flatten().collect();
    keys.sort_by_key(|(key, _)| FIRST.iter().position(|first| first == key).unwrap_or(FIRST.len()));
    let one = |(key, value): (&String, &Value)| {
        let group: Map<_, _> = std::iter::once((key.clone(), value.clone())).collect();
        base::encode::yaml(&group)
    };
    keys.into_iter().map(one).collect()
}

/// The digest of each template that a node is made from.
pub(super) fn digests(file: &ClusterFile, nodes: &[ClusterNode]) -> BTreeMap<String, String> {
    let used = |name: &String| nodes.iter().any(|node| node.template.as_ref() == Some(name));
    let digest = |group: &KeyGroup| {
        // The keys of a map come in their order, so that the same template gives the same bytes.
        Digest::of(Value::Object(group.clone()).to_string().as_bytes()).to_string()
    };
    file.templates
        .iter()
        .filter(|(name, _)| used(name))
        .map(|(name, group)| (name.clone(), digest(group)))
        .collect()
}
