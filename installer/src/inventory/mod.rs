//! The disks and network cards of this machine, as the kernel tells them in sysfs and procfs.
//!
//! Nothing here runs a program or parses the text of one; what is on a disk is read from its bytes
//! ([`signatures`]). Every file is reached below [`Roots`], so a test
//! scans a directory, and an inventory goes through JSON unchanged: `installer inventory` on one machine is
//! the input of `installer plan --inventory` on another.

mod disk;
mod disks;
mod holders;
mod identity;
mod multipath;
pub(crate) mod nics;
pub mod signatures;
mod table;
mod udev;
mod usage;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use disk::{Disk, DiskPath, FoundEntry, FoundPartition};
pub use holders::{Holder, HolderKind};
pub use identity::read_identity;
pub use signatures::{Kind, Signature};

/// What a scan reads. Of device nodes it reads the places where formats have their marks.
#[derive(Clone, Debug)]
pub struct Roots {
    /// sysfs, `/sys`.
    pub sys: PathBuf,
    /// Device nodes and their links, `/dev`. Paths in the inventory always begin with `/dev` itself.
    pub dev: PathBuf,
    /// procfs, `/proc`.
    pub proc: PathBuf,
    /// udev's records of devices, `/run/udev/data`.
    pub udev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into(), proc: "/proc".into(), udev: "/run/udev/data".into() }
    }
}

impl Roots {
    /// The same below a directory, as tests lay them out: `sys`, `dev`, `proc` and `udev`.
    #[cfg(test)]
    pub(crate) fn below(root: &Path) -> Self {
        let [sys, dev, proc, udev] = ["sys", "dev", "proc", "udev"].map(|name| root.join(name));
        Self { sys, dev, proc, udev }
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

/// One network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// The kernel's name, such as `ens3`.
    pub name: String,
    /// Hardware address; of a card in a bond, its own.
    pub mac: String,
    /// Whether a cable is in; not known while the card is down.
    pub carrier: Option<bool>,
    /// Megabits a second, when there is a link.
    pub speed: Option<u32>,
    /// The kernel module that drives it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Whether the hardware address is not the card's own: drawn by the kernel at this start, or set by a program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary_mac: bool,
}

impl Inventory {
    /// Looks at everything once.
    pub fn scan(roots: &Roots) -> Result<Self> {
        Ok(Self { disks: disks::scan(roots)?, nics: nics::scan(&roots.sys) })
    }

    /// The disk that `path` means: its node, its kernel name below `/dev`, one of its links, or one of the paths that
    /// lead to it.
    #[must_use]
    pub fn find(&self, path: &Path) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.is_at(path))
    }
}

/// The text of a small sysfs file without white space at its ends; `None` if absent, unreadable or empty.
/// Many attributes exist only for some drivers, and some refuse to be read while a device is down.
pub(crate) fn attribute(path: &Path) -> Option<String> {
    let text = base::files::read_at_most(path, 64 << 10).ok()?;
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
pub(crate) mod specimens;
#[cfg(test)]
pub(crate) mod tests;
