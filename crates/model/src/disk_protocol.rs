//! How a disk is reached over the network. The boot contract and the configuration of such disks both build on it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a disk is reached over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskProtocol {
    Iscsi,
    NvmeTcp,
}

impl DiskProtocol {
    /// What a storage system calls a group of disks that it offers.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::Iscsi => "iSCSI target",
            Self::NvmeTcp => "NVMe subsystem",
        }
    }
}

impl fmt::Display for DiskProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iscsi => "iSCSI",
            Self::NvmeTcp => "NVMe over TCP",
        })
    }
}
