//! The disks and network cards of this machine, as the kernel tells them in sysfs and procfs.
//!
//! Nothing here runs a program or parses the text of one; the label of a file system is read from its
//! superblock, a partition table from the disk. Every file is reached below [`Roots`], so a test
//! scans a directory, and an inventory goes through JSON unchanged: `installer inventory` on one machine is
//! the input of `installer plan --inventory` on another.

mod disks;
mod nics;
mod table;
mod usage;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::size::ByteSize;

/// Where the live system mounts the medium that it was booted from.
pub const BOOT_MEDIUM: &str = "/run/initramfs/live";

/// The three file systems that a scan reads. Of device nodes it reads partition tables and the label of an ext4
/// file system only.
#[derive(Clone, Debug)]
pub struct Roots {
    /// sysfs, `/sys`.
    pub sys: PathBuf,
    /// Device nodes and their links, `/dev`. Paths in the inventory always begin with `/dev` itself.
    pub dev: PathBuf,
    /// procfs, `/proc`.
    pub proc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into(), proc: "/proc".into() }
    }
}

/// What a machine has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// Disks, by kernel name; also the optical drive if it holds the boot medium.
    pub disks: Vec<Disk>,
    /// Network cards, by kernel name.
    pub nics: Vec<Nic>,
}

/// One disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The kernel's name, such as `sda` or `nvme0n1`.
    pub name: String,
    /// Its node, such as `/dev/sda`.
    pub path: PathBuf,
    /// Its length.
    pub size: ByteSize,
    /// The unit of addressing in bytes, 512 or 4096.
    pub logical_sector: u32,
    /// The unit that the medium writes without reading first, in bytes.
    pub physical_sector: u32,
    /// A spinning disk.
    pub rotational: bool,
    /// A drive whose medium can be taken out.
    pub removable: bool,
    /// Writing is not possible.
    pub read_only: bool,
    /// An optical drive; never a target.
    pub optical: bool,
    /// How it is attached.
    pub transport: Transport,
    /// The maker's name for it.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// World-wide name.
    pub wwn: Option<String>,
    /// Stable links to it below `/dev/disk`.
    pub links: Vec<PathBuf>,
    /// It holds the medium that this system runs from.
    pub boot_medium: bool,
    /// Why it is in use, one clause each; empty when it is not.
    pub in_use: Vec<String>,
    /// The label of the ext2, ext3 or ext4 file system on the whole of it, if it has no partitions.
    #[serde(default)]
    pub filesystem_label: Option<String>,
    /// The partitions that the kernel sees. It sees none where the first copy of a GUID partition table is damaged;
    /// then those of the second copy.
    pub partitions: Vec<FoundPartition>,
}

/// A partition that is on a disk now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundPartition {
    /// The kernel's name, such as `sda1`.
    pub name: String,
    /// Its node.
    pub path: PathBuf,
    /// Where it begins.
    pub start: ByteSize,
    /// Its length.
    pub size: ByteSize,
    /// Its entry, where the disk has a GUID partition table.
    #[serde(default)]
    pub entry: Option<FoundEntry>,
    /// The name in the partition table.
    pub label: Option<String>,
    /// The label of the ext2, ext3 or ext4 file system on it.
    #[serde(default)]
    pub filesystem_label: Option<String>,
    /// Stable links to it below `/dev/disk`.
    pub links: Vec<PathBuf>,
}

/// What a GUID partition table says of a partition beside its place and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundEntry {
    /// Its number, from 1.
    pub number: u32,
    /// Its type.
    pub kind: Uuid,
    /// PARTUUID.
    pub uuid: Uuid,
}

/// How a disk is attached, guessed from its place in the device tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Transport {
    Nvme,
    Virtio,
    Usb,
    Ata,
    Sas,
    Iscsi,
    Mmc,
    Scsi,
    Other,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// One network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// The kernel's name, such as `ens3`.
    pub name: String,
    /// Hardware address.
    pub mac: String,
    /// Whether a cable is in; not known while the card is down.
    pub carrier: Option<bool>,
    /// Megabits a second, when there is a link.
    pub speed: Option<u32>,
}

impl Inventory {
    /// Looks at everything once.
    pub fn scan(roots: &Roots) -> Result<Self> {
        Ok(Self { disks: disks::scan(roots)?, nics: nics::scan(&roots.sys)? })
    }

    /// The disk that `path` means: its node, its kernel name below `/dev`, or one of its links.
    #[must_use]
    pub fn find(&self, path: &Path) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.path == path || disk.links.iter().any(|link| link == path))
    }
}

impl Disk {
    /// Size, model, serial number, and the file system of a disk without partitions, in one line, for choosing.
    #[must_use]
    pub fn describe(&self) -> String {
        let word = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!(", {name} {value}")).unwrap_or_default()
        };
        let (model, serial) = (word("model", &self.model), word("serial", &self.serial));
        let label = word("file system", &self.filesystem_label);
        format!("{}: {}{model}{serial}{label}", self.path.display(), self.size)
    }
}

impl FoundPartition {
    /// Node, size, name and label in one line, for those who may lose it.
    #[must_use]
    pub fn describe(&self) -> String {
        let name = self.label.as_ref().map(|name| format!("  {name}")).unwrap_or_default();
        let label = self.filesystem_label.as_ref().filter(|label| Some(*label) != self.label.as_ref());
        let label = label.map(|label| format!("  ({label})")).unwrap_or_default();
        format!("{}  {}{name}{label}", self.path.display(), self.size)
    }
}

/// The text of a small sysfs file without white space at its ends; `None` if absent, unreadable or empty.
/// Many attributes exist only for some drivers, and some refuse to be read while a device is down.
fn attribute(path: &Path) -> Option<String> {
    let text = crate::files::read_at_most(path, 64 << 10).ok()?;
    let text = String::from_utf8_lossy(&text).trim_matches(['\0', ' ', '\n', '\t']).to_owned();
    (!text.is_empty()).then_some(text)
}

fn number(path: &Path) -> Option<u64> {
    attribute(path)?.parse().ok()
}

/// The names in a directory, sorted; none if it is absent.
fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests;
