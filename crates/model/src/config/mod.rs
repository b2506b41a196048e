//! The install configuration: what a node shall be. One strict type serves the installer, the builder and the
//! documentation; the same document, kept on the node, is the node document.
//!
//! Key names are those of the reference product in `snake_case`; its `camelCase` spelling is accepted too.
//! Unknown keys are errors. A document is read in three passes that together find every mistake: [`tree`]
//! reads the YAML, [`walk`] holds it key by key against the [`shape`] of the types here, [`rules`] see what
//! values must be to one another.

pub mod boot_password;
pub mod cluster;
pub mod diagnostic;
pub mod disk;
pub mod echo;
pub mod encoding;
pub mod formats;
pub mod install;
pub mod network;
pub mod os;
pub mod password;
pub mod proxies;
mod read;
pub mod redact;
#[cfg(test)]
pub mod reference;
pub mod registries;
pub mod reinstall;
mod retired;
pub mod rules;
pub mod secret;
pub mod shape;
pub mod sizes;
pub mod sources;
#[cfg(test)]
mod tests;
pub mod text;
pub mod tree;
pub mod walk;
pub mod webhook;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use boot_password::BootPassword;
pub use cluster::{Addon, Distribution, Harvester, Kubernetes, Manifest, VipMode};
pub use diagnostic::{Diagnostic, Invalid, Severity};
pub use disk::{DiskClauses, DiskSelector, SizeClause};
pub use install::{Images, Install, Keep, Mode, Profile, Role, Wipe, WipeFailure};
pub use network::{BondMode, BondOptions, Cidr, Interface, ManagementInterface, Method, Network};
pub use os::{ExternalStorage, MultiPath, Os, Sshd, User, WriteFile};
pub use read::{Accepted, check, load, parse};
pub use reinstall::{OnceWord, Reinstall};
pub use secret::Secret;
pub use text::*;
pub use webhook::Webhook;

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
    /// join one, unless it comes from `token_file` or `token_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "token"))]
    pub token: Option<Secret>,
    /// A file of the installing system that holds the token, instead of `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<AbsolutePath>,
    /// Where to fetch the token, instead of `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<HttpUrl>,
    /// Further names and addresses that the API server's certificate is good for; only in create mode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sans: Vec<San>,
    /// Settings of the cluster by name, as text; only in create mode. Some hold secrets, so none is shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "setting" }))]
    pub system_settings: BTreeMap<String, Secret>,
    /// The operating system of the node.
    pub os: Os,
    /// The installation.
    pub install: Install,
    /// Kubernetes, where the defaults do not fit.
    pub kubernetes: Kubernetes,
}

/// The JSON Schema of the document, as `installer schema` prints it.
#[must_use]
pub fn json_schema() -> String {
    base::encode::json_text(&schemars::schema_for!(InstallConfig))
}
