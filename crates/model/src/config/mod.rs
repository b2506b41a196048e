//! The install configuration: what a node shall be. One strict type serves the installer, the builder and the
//! documentation; the same document, kept on the node, is the node document.
//!
//! Key names are those of the reference product in `snake_case`; its `camelCase` spelling is accepted too.
//! Unknown keys are errors. A document is read in three passes that together find every mistake: [`tree`]
//! reads the YAML, [`walk`] holds it key by key against the [`shape`] of the types here, [`rules`] see what
//! values must be to one another.

mod agents;
pub mod boot_password;
mod cidr;
pub mod cluster;
pub mod cluster_secrets;
pub mod convert;
pub mod disk;
pub mod encoding;
pub mod formats;
pub(crate) mod harvester;
pub mod host;
pub mod install;
mod install_config;
pub mod kind;
pub mod network;
pub mod network_disks;
pub mod os;
pub mod password;
pub mod proxies;
mod read;
pub mod redact;
#[cfg(test)]
pub mod reference;
pub mod registries;
pub mod reinstall;
pub mod rules;
pub mod shape;
mod size_clause;
pub mod sizes;
pub mod sources;
#[cfg(test)]
mod tests;
pub mod text;
mod token;
mod trust;
pub mod webhook;

pub use boot_password::BootPassword;
pub use cluster::{Addon, Distribution, Harvester, Kubernetes, Manifest, PodNetwork, Timing, VipMode};
pub use disk::{DiskClauses, DiskSelector, SizeClause};
pub use document::diagnostic::{self, Diagnostic, Invalid, Severity};
pub use document::secret::Secret;
pub use harvester::published::json_schema;
pub use host::{CpuGovernor, CpuSettings, HostSettings, HugePageSize, HugePages, SriovCard};
pub use install::{Images, Install, Keep, Mode, NodeRole, Profile, Role, Wipe, WipeFailure};
pub use install_config::InstallConfig;
pub use network::{BondMode, BondOptions, Cidr, Interface, ManagementInterface, Method, Network};
pub use network_disks::{Chap, IscsiTarget, NetworkDisks, NvmeSubsystem, StorageCard};
pub use os::{ExternalStorage, MultiPath, Os, Sshd, User, WriteFile};
pub use read::{UsableDocument, ValidConfig, check, check_in_use, load, load_applicable, load_usable, parse};
pub use reinstall::{OnceWord, Reinstall};
pub use text::*;
pub use token::{Login, Token};
pub use trust::{CustomizationPolicy, OwnerKey, ReleaseKey, Trust, UnsignedRelease};
pub use webhook::Webhook;
