//! The install configuration: what a node shall be. One strict type serves the installer, the builder and the
//! documentation; the same document, kept on the node, is the node document.
//!
//! Key names are those of the reference product in `snake_case`; its `camelCase` spelling is accepted too.
//! Unknown keys are errors. A document is read in three passes that together find every mistake: [`tree`]
//! reads the YAML, [`walk`] holds it key by key against the [`shape`] of the types here, [`rules`] see what
//! values must be to one another.

pub mod diagnostic;
pub mod formats;
pub mod password;
mod read;
pub mod rules;
pub mod secret;
pub mod shape;
#[cfg(test)]
mod tests;
pub mod text;
pub mod tree;
pub mod walk;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use diagnostic::{Diagnostic, Invalid};
pub use read::{check, load, parse};
pub use secret::Secret;
pub use text::{Hostname, InterfaceName, MacAddress, ModuleName, SshKey, SysctlValue, TimeServer};

use crate::size::ByteSize;

/// The whole document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InstallConfig {
    /// Version of the document's scheme; 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme_version: Option<u32>,
    /// The cluster's shared secret. Kept in the node document for joining.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "token"))]
    pub token: Option<Secret>,
    /// The operating system of the node.
    pub os: Os,
    /// The installation.
    pub install: Install,
}

/// Settings of the operating system, applied at every boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Os {
    /// Host name, lower-case letters, digits, `-` and `.` (RFC 1123).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Hostname>,
    /// Public keys that may log in as `rancher`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ssh_authorized_keys: Vec<SshKey>,
    /// Password of `rancher`: a crypt(5) hash, or clear text that is hashed before it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "password"))]
    pub password: Option<Secret>,
    /// Name servers, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_nameservers: Vec<Ipv4Addr>,
    /// Time servers: names or addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<TimeServer>,
    /// Kernel modules to load at boot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleName>,
    /// Kernel settings, as in sysctl.conf(5).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "sysctl-key" }))]
    pub sysctls: BTreeMap<String, SysctlValue>,
}

/// How to install.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Install {
    /// Install without questions.
    pub automatic: bool,
    /// What the node is to its cluster.
    pub mode: Mode,
    /// Which part the node plays in the cluster.
    pub role: Role,
    /// Minimum sizes of a production node, or those of a trial.
    pub profile: Profile,
    /// The disk for the system, a path below /dev. Needed when more than one disk could be meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "device"))]
    pub device: Option<PathBuf>,
    /// Size of the persistent partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "byte-size"))]
    pub persistent_partition_size: Option<ByteSize>,
    /// The management network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub management_interface: Option<ManagementInterface>,
    /// Where payloads come from that the boot medium does not hold: the URL of the directory that has the
    /// content of a full medium.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "medium-url"))]
    pub medium: Option<String>,
    /// Power off at the end instead of rebooting.
    pub poweroff: bool,
}

/// What the node is to its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The first node of a new cluster.
    #[default]
    Create,
    /// A further node.
    Join,
    /// The operating system only.
    Install,
}

/// Which part the node plays in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A worker that may be promoted.
    #[default]
    Default,
    /// Runs the control plane.
    Management,
    /// Never runs the control plane.
    Worker,
    /// Votes in etcd and runs nothing else; has no data partition.
    Witness,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Default, Self::Management, Self::Worker, Self::Witness];

    /// The name as configurations write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Management => "management",
            Self::Worker => "worker",
            Self::Witness => "witness",
        }
    }
}

impl Mode {
    /// The name that documents use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Join => "join",
            Self::Install => "install",
        }
    }
}

/// Which minimum sizes hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The sizes that a production node needs.
    #[default]
    Production,
    /// Small partitions for tests and trials.
    Trial,
}

/// The management network of the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ManagementInterface {
    /// The network cards, by name or by hardware address.
    pub interfaces: Vec<Interface>,
    /// Where the address comes from.
    pub method: Method,
    /// Address, for `static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<Ipv4Addr>,
    /// Dotted network mask, for `static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_mask: Option<Ipv4Addr>,
    /// Default gateway, for `static`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// Largest packet, 576 to 9000 bytes; 0 leaves it to the driver.
    pub mtu: u32,
}

/// One network card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Interface {
    /// Kernel name, such as `ens3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<InterfaceName>,
    /// Permanent hardware address, such as `52:54:00:12:34:56`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hw_addr: Option<MacAddress>,
}

/// Where an address comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// From a DHCP server.
    #[default]
    Dhcp,
    /// From this document.
    Static,
}
