//! The outputs of a build.

use std::path::PathBuf;

use base::size::ByteSize;
use model::config;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One of the things that a build can make of a definition.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum OutputKind {
    /// The ISO that carries everything.
    Full,
    /// The ISO whose container images come over the network.
    NetInstall,
    /// Kernel, initrd and OS image as files.
    Netboot,
    /// The disk of an installed node, as its bytes.
    DiskRaw,
    /// The same disk in the format of QEMU.
    DiskQcow2,
}

impl OutputKind {
    pub const MEDIA: [Self; 3] = [Self::Full, Self::NetInstall, Self::Netboot];

    /// True if it is a disk, not a medium.
    #[must_use]
    pub fn is_disk(self) -> bool {
        matches!(self, Self::DiskRaw | Self::DiskQcow2)
    }
}

/// The outputs of a definition that names none.
pub(super) fn media() -> Vec<OutputKind> {
    OutputKind::MEDIA.to_vec()
}

/// The disk that `disk-raw` and `disk-qcow2` are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiskSpec {
    /// Its size, such as `40Gi`; by default the least that its partitions need. A machine with a larger disk lets the last
    /// partition grow on its first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// The sizes of its partitions where there is no `config`, whose `install.profile` says them; `trial` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<config::Profile>,
    /// The install configuration of the node, complete as for an unattended install. Without it the first start of each copy asks, or
    /// reads a configuration volume or kernel parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
}
