//! The users of a disk: mounts, swap, and the devices that are made on top of it, up to their own mounts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::sysfs::{attribute, names, node};
use super::usage::DeviceUsage;

/// One use of a disk, a partition, or a device on top of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holder {
    /// The node that is used, such as `/dev/sda1`, or `/dev/md0` for a mount of an array on top of it.
    pub on: PathBuf,
    pub kind: HolderKind,
    /// The mount point, the name in `/dev/mapper`, the pool, or the name of the exported device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The node of the device that is made of it, such as `/dev/dm-0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HolderKind {
    Mount,
    /// Active swap space.
    Swap,
    Lvm,
    Md,
    Crypt,
    Multipath,
    Partition,
    Mapper,
    Zfs,
    /// A device that this machine exports as a SCSI target, for example over iSCSI.
    Target,
    Loop,
    Bcache,
    Drbd,
    Other,
}

impl fmt::Display for Holder {
    /// A clause, such as `/dev/sda1 is mounted at /data`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = self.on.display();
        let device =
            self.device.as_deref().map(Path::display).map(|node| node.to_string()).unwrap_or_default();
        let name = self.name.as_deref().unwrap_or(&device);
        match self.kind {
            HolderKind::Mount if name == "/" => write!(f, "{on} is the root of the running system"),
            HolderKind::Mount => write!(f, "{on} is mounted at {name}"),
            HolderKind::Swap => write!(f, "{on} is swap space"),
            HolderKind::Lvm => write!(f, "{on} is part of the LVM volume {name}"),
            HolderKind::Md => write!(f, "{on} is part of the RAID {device}"),
            HolderKind::Crypt => write!(f, "{on} is open as the encrypted device {name}"),
            HolderKind::Multipath => write!(f, "{on} is a path of the multipath device {name}"),
            HolderKind::Partition => write!(f, "{on} has the partition {name}"),
            HolderKind::Zfs => write!(f, "{on} is part of the ZFS pool {name}"),
            HolderKind::Target => write!(f, "{on} is exported to other machines as {name}"),
            HolderKind::Loop => write!(f, "{on} is behind the loop device {device}"),
            HolderKind::Mapper | HolderKind::Bcache | HolderKind::Drbd | HolderKind::Other => {
                write!(f, "{on} is part of {device}{}", mapped(self.name.as_deref()))
            }
        }
    }
}

fn mapped(name: Option<&str>) -> String {
    name.map(|name| format!(" ({name})")).unwrap_or_default()
}

/// Everything that uses the devices `names` or is made of them, each after what it is made of.
pub(super) fn of(sys: &Path, usage: &DeviceUsage, names: &[String]) -> Vec<Holder> {
    let mut levels: BTreeMap<String, usize> = BTreeMap::new();
    for name in names {
        climb(sys, usage, name, 0, &mut levels);
    }
    // A disk comes before its partitions, and devices of a level by name.
    let mut order: Vec<_> = levels.iter().map(|(name, level)| (*level, name)).collect();
    order.sort();
    order.iter().flat_map(|(_, name)| on(sys, usage, name)).collect()
}

/// Gives each device above `name` the length of the longest way to it. The kernel has no loops of devices; a limit keeps a
/// fabricated one from hanging.
fn climb(sys: &Path, usage: &DeviceUsage, name: &str, level: usize, levels: &mut BTreeMap<String, usize>) {
    const HIGHEST: usize = 16;
    let known = levels.entry(name.to_owned()).or_insert(level);
    *known = level.max(*known);
    if level < HIGHEST {
        for above in devices_on_top(sys, usage, name) {
            climb(sys, usage, &above, level + 1, levels);
        }
    }
}

/// The kernel names of the devices that are made of `name`.
fn devices_on_top(sys: &Path, usage: &DeviceUsage, name: &str) -> Vec<String> {
    let mut above = names(&device_directory(sys, name).join("holders"));
    above.extend(usage.loops_over(name));
    above
}

/// The users of `name` itself.
fn on(sys: &Path, usage: &DeviceUsage, name: &str) -> Vec<Holder> {
    let used = node(name);
    let place = device_directory(sys, name);
    let holder = |kind, name| Holder { on: used.clone(), kind, name, device: None };
    let mapper = attribute(&place.join("dm/name")).map(|name| format!("/dev/mapper/{name}"));
    let mut holders: Vec<_> = usage
        .mounts_of(attribute(&place.join("dev")).as_deref(), &[used.to_str(), mapper.as_deref()])
        .map(|point| holder(HolderKind::Mount, Some(point.display().to_string())))
        .collect();
    holders.dedup();
    if usage.is_swap(&used) {
        holders.push(holder(HolderKind::Swap, None));
    }
    holders.extend(usage.exports_of(&used).map(|name| holder(HolderKind::Target, Some(name.to_owned()))));
    holders.extend(devices_on_top(sys, usage, name).into_iter().map(|above| {
        let (kind, name) = kind_and_name(sys, &above);
        Holder { device: Some(node(&above)), ..holder(kind, name) }
    }));
    holders
}

/// The kind of a device, and its name if it has one beside the kernel's. The device mapper's users put their name before the
/// identities of their devices (Documentation/admin-guide/device-mapper, and each tool's source).
fn kind_and_name(sys: &Path, name: &str) -> (HolderKind, Option<String>) {
    let place = device_directory(sys, name);
    if let Some(mapped) = attribute(&place.join("dm/name")) {
        let uuid = attribute(&place.join("dm/uuid")).unwrap_or_default();
        let kind = match uuid.split_once('-').map_or("", |(user, _)| user) {
            "LVM" => HolderKind::Lvm,
            "CRYPT" => HolderKind::Crypt,
            "mpath" => HolderKind::Multipath,
            user if user.starts_with("part") => HolderKind::Partition,
            _ => HolderKind::Mapper,
        };
        return (kind, Some(mapped));
    }
    let kinds = [
        ("md", HolderKind::Md),
        ("loop", HolderKind::Loop),
        ("bcache", HolderKind::Bcache),
        ("drbd", HolderKind::Drbd),
    ];
    let kind = kinds.iter().find(|(prefix, _)| name.starts_with(prefix));
    (kind.map_or(HolderKind::Other, |(_, kind)| *kind), None)
}

/// The directory of a device in sysfs; partitions have theirs below their disk's, and a link here.
fn device_directory(sys: &Path, name: &str) -> PathBuf {
    sys.join("class/block").join(name)
}
