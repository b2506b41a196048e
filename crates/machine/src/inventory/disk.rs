//! A disk of the inventory.

use std::fmt;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::holders::Holder;
use super::signatures::{Signature, SignatureKind};
use base::size::ByteSize;
use model::config::disk::Transport;
use model::network_disks::DiskProtocol;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The kernel's name, such as `sda` or `nvme0n1`.
    pub name: String,
    /// Its node, such as `/dev/sda`.
    pub path: PathBuf,
    pub size: ByteSize,
    /// In bytes, 512 or 4096.
    pub logical_sector: u32,
    /// The unit that the medium writes without reading first, in bytes.
    pub physical_sector: u32,
    pub rotational: bool,
    pub removable: bool,
    /// The kernel refuses writes.
    pub read_only: bool,
    /// An optical drive; never a target.
    pub optical: bool,
    pub transport: Transport,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub wwn: Option<String>,
    /// Number of the namespace on an NVMe controller, whose namespaces share model and serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u32>,
    /// Stable links to it below `/dev/disk`.
    pub links: Vec<PathBuf>,
    /// It holds the medium that this system runs from.
    pub boot_medium: bool,
    /// Where the disk is, if it is reached over the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteTarget>,
    /// The disks below this one, if it is a multipath device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<DiskPath>,
    /// The users of the disk and of its partitions, from the disk upwards; empty for a free disk. An install stops them in the
    /// opposite order.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// The signatures outside its partitions.
    #[serde(default)]
    pub signatures: Vec<Signature>,
    /// Why a part of it or of its partitions could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// The partitions that the kernel sees. It sees none if the first copy of a GUID partition table is damaged; then those of
    /// the second copy.
    pub partitions: Vec<FoundPartition>,
}

/// The iSCSI target or the NVMe subsystem of a disk, and the addresses at which it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteTarget {
    pub protocol: DiskProtocol,
    pub target: String,
    pub portals: Vec<SocketAddrV4>,
}

impl fmt::Display for RemoteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let portals: Vec<_> = self.portals.iter().map(ToString::to_string).collect();
        write!(f, "{} {} at {}", self.protocol.group(), self.target, portals.join(", "))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskPath {
    pub name: String,
    pub path: PathBuf,
    /// Stable links to it below `/dev/disk`.
    pub links: Vec<PathBuf>,
}

/// A partition that is on a disk now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundPartition {
    /// The kernel's name, such as `sda1`.
    pub name: String,
    pub path: PathBuf,
    pub start: ByteSize,
    pub size: ByteSize,
    /// Its entry, if the disk has a GUID partition table.
    #[serde(default)]
    pub entry: Option<FoundEntry>,
    /// The name in the partition table.
    pub label: Option<String>,
    #[serde(default)]
    pub signatures: Vec<Signature>,
    /// Stable links to it below `/dev/disk`.
    pub links: Vec<PathBuf>,
}

/// The fields of an entry in a GUID partition table beside place and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundEntry {
    pub number: u32,
    pub kind: Uuid,
    pub uuid: Uuid,
}

impl Disk {
    /// Size, model, serial number, content outside its partitions, use, and read errors, in one line, for choosing a disk.
    #[must_use]
    pub fn describe(&self) -> String {
        let used = self.in_use().map(|used| format!(", in use: {used}")).unwrap_or_default();
        let unread =
            self.unread.as_ref().map(|why| format!(", could not be read: {why}")).unwrap_or_default();
        format!("{}{used}{unread}", self.identify())
    }

    /// The users of the disk, in words; `None` for a free disk.
    #[must_use]
    pub fn in_use(&self) -> Option<String> {
        let (first, more) = self.holders.split_first()?;
        let more = if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
        Some(format!("{first}{more}"))
    }

    /// Size, model, serial number, and content outside its partitions, in one line. It is the same while the disk is being
    /// used.
    #[must_use]
    pub fn identify(&self) -> String {
        let word = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!(", {name} {value}")).unwrap_or_default()
        };
        let (model, serial) = (word("model", &self.model), word("serial", &self.serial));
        // The first namespace is the only one of most disks.
        let namespace = self.namespace.filter(|number| *number != 1);
        let namespace = namespace.map(|number| format!(", namespace {number}")).unwrap_or_default();
        let paths = match self.paths.len() {
            0 => String::new(),
            count => format!(", {count} paths"),
        };
        let remote = self.remote.as_ref().map(|remote| format!(", {remote}")).unwrap_or_default();
        // A table need not be named if its partitions are listed.
        let content = self
            .signatures
            .iter()
            .filter(|found| found.kind != SignatureKind::Gpt && found.kind.holds_content());
        let content: String = content.map(|found| format!(", {found}")).collect();
        format!("{}: {}{model}{serial}{namespace}{remote}{paths}{content}", self.path.display(), self.size)
    }

    /// Whether it is the map that multipathd makes of several paths.
    #[must_use]
    pub fn is_map(&self) -> bool {
        !self.paths.is_empty()
    }

    /// The WWID by which multipathd knows a map. udev has a link with it; in the live system it is the name of the map.
    #[must_use]
    pub fn multipath_id(&self) -> Option<&str> {
        let linked =
            self.links.iter().find_map(|link| link.file_name()?.to_str()?.strip_prefix("dm-uuid-mpath-"));
        linked.or_else(|| self.path.file_name()?.to_str()).filter(|_| self.is_map())
    }

    /// Whether `path` is its node, one of its links, or one of those of the paths to it.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        let nodes = [(&self.path, &self.links)].into_iter();
        let mut nodes = nodes.chain(self.paths.iter().map(|way| (&way.path, &way.links)));
        nodes.any(|(node, links)| node == path || links.iter().any(|link| link == path))
    }
}

impl FoundPartition {
    /// Node, size, name and content in one line, for people who may lose it.
    #[must_use]
    pub fn describe(&self) -> String {
        let name = self.label.as_ref().map(|name| format!("  {name}")).unwrap_or_default();
        let content: Vec<_> = self.signatures.iter().map(ToString::to_string).collect();
        let content = if content.is_empty() { String::new() } else { format!("  ({})", content.join(", ")) };
        format!("{}  {}{name}{content}", self.path.display(), self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::super::HolderKind;
    use super::*;

    #[test]
    fn what_uses_a_disk_and_what_could_not_be_read_is_part_of_its_description() {
        let inventory: super::super::Inventory = serde_json::from_str(testing::inventories::SCREENS).unwrap();
        let mut disk = inventory.disks[1].clone();
        assert_eq!(disk.describe(), disk.identify());
        let root = |on: &str| Holder {
            on: on.into(),
            kind: HolderKind::Mount,
            name: Some("/".into()),
            device: None,
        };
        disk.holders = vec![root("/dev/sdb"), root("/dev/sdb")];
        disk.unread = Some("/dev/sdb: Input/output error (os error 5)".into());
        let told = ", in use: /dev/sdb is the root of the running system (and 1 more), \
                    could not be read: /dev/sdb: Input/output error (os error 5)";
        assert_eq!(disk.describe(), format!("{}{told}", disk.identify()));
    }
}
