//! The type of the whole document, of which the types of the other files are the parts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::Kubernetes;
use super::install::Install;
use super::os::Os;
use super::registries::{Registries, SETTING};
use super::text::{AbsolutePath, HttpUrl, San, ServerUrl};
use document::secret::Secret;

/// The whole document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InstallConfig {
    /// Version of the document's scheme; 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme_version: Option<u32>,
    /// The cluster to join: `https://` and the VIP or name of the cluster; only in join mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_url: Option<ServerUrl>,
    /// The cluster's shared secret, at least 16 characters that nobody guesses. Needed to create a cluster and to
    /// join one, unless it comes from `token_file` or `token_url`. A weak one is refused for an install without questions,
    /// and a warning otherwise; a placeholder such as `${TOKEN}` or `CHANGEME` is always refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "token"))]
    pub token: Option<Secret>,
    /// A file of the installing system that holds the token, instead of `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<AbsolutePath>,
    /// Where to fetch the token, instead of `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<HttpUrl>,
    /// Further names and addresses that the API server's certificate is good for; only on servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sans: Vec<San>,
    /// Settings of the cluster by name, as text; only in create mode. Some hold secrets, so none is shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "setting" }))]
    pub system_settings: BTreeMap<String, Secret>,
    /// Mirrors of registries and how to talk to registries, in the form of `registries.yaml` of RKE2 and K3s: for containerd and
    /// for what the installer fetches. The setting `containerd-registry` says the same; a document has one of them.
    #[serde(skip_serializing_if = "Registries::is_empty")]
    pub registries: Registries,
    /// The operating system of the node.
    pub os: Os,
    /// The installation.
    pub install: Install,
    /// Kubernetes, where the defaults do not fit.
    pub kubernetes: Kubernetes,
}

impl InstallConfig {
    /// The registries of the node, whichever of the two keys has them.
    #[must_use]
    pub fn node_registries(&self) -> Registries {
        match self.registries.is_empty() {
            // The rules of the document have refused a setting that does not parse.
            true => self.registries_setting().flatten().unwrap_or_default(),
            false => self.registries.clone(),
        }
    }

    /// The cluster's setting, if there is one; `Some(None)` where it cannot be read.
    pub(super) fn registries_setting(&self) -> Option<Option<Registries>> {
        self.system_settings.get(SETTING).map(|value| Registries::parse(value.expose()))
    }

    /// The dotted key that has the registries of the node.
    pub(super) fn registries_path(&self) -> String {
        if self.registries.is_empty() {
            format!("system_settings.{SETTING}")
        } else {
            "registries".to_owned()
        }
    }
}
