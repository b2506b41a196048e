//! The disks and network cards of this machine, from sysfs and procfs.
//!
//! Nothing here runs a program or parses the text of one; what is on a disk is read from its bytes ([`signatures`]). Every file
//! is reached below [`Roots`], so a test scans a directory, and an inventory goes through JSON unchanged: `installer inventory`
//! on one machine is the input of `installer plan --inventory` on another.

mod changes;
mod disk;
mod disks;
mod evidence;
mod holders;
mod identity;
pub mod in_use;
pub(crate) mod iscsi;
mod joined;
mod multipath;
pub mod nics;
pub(crate) mod nvme;
pub mod pci;
pub mod signatures;
pub(crate) mod sysfs;
mod table;
mod udev;
mod usage;

use std::path::Path;

use anyhow::Result;
use model::architecture::Architecture;
use model::hardware::HardwareInUse;
use serde::{Deserialize, Serialize};

pub use changes::changes;
pub use disk::{Disk, DiskPath, FoundEntry, FoundPartition, RemoteTarget};
pub use evidence::{bare_wwn, in_link};
pub use holders::{Holder, HolderKind};
pub use identity::read_identity;
pub use multipath::{map_of_partition, map_partitions, partition_disk};
pub use nics::Nic;
pub use signatures::{Signature, SignatureKind};
pub use sysfs::{Roots, names as directory_names};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// None in documents of older versions, and where it does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// By kernel name; also the optical drive if it holds the boot medium.
    pub disks: Vec<Disk>,
    /// By kernel name.
    pub nics: Vec<Nic>,
    /// The devices behind them with their drivers; none in documents of older versions, and where it does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareInUse>,
}

impl Inventory {
    /// Reads disks and network cards once.
    pub fn scan(roots: &Roots) -> Result<Self> {
        let architecture = Some(Architecture::of_this_program());
        Ok(Self { architecture, disks: disks::scan(roots)?, nics: nics::scan(&roots.sys), hardware: None })
    }

    /// The same with the devices behind them. It reads the tables of the running kernel too, so it is for those who ask for it.
    pub fn scan_with_hardware(roots: &Roots) -> Result<Self> {
        let inventory = Self::scan(roots)?;
        let hardware = Some(in_use::scan(roots, &inventory.disks, &inventory.nics));
        Ok(Self { hardware, ..inventory })
    }

    /// The disk of `path`: its node, its kernel name below `/dev`, one of its links, or one of the paths to it.
    #[must_use]
    pub fn find(&self, path: &Path) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.is_at(path))
    }
}

#[cfg(test)]
mod tests;
