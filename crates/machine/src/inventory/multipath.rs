//! Multipath disks: the device mapper's map is the disk, and the disks below it are its paths.
//!
//! multipathd gives its maps identities that begin with `mpath-`; the partitions of a map are maps too, with identities such as
//! `part1-mpath-...` (multipath-tools, libmultipath/devmapper.h; kpartx).

use std::path::{Path, PathBuf};

use super::disk::DiskPath;
use super::sysfs::{attribute, names, node, number};

pub(super) struct MultipathMap {
    /// The kernel's name, such as `dm-0`.
    pub(super) name: String,
    /// Its stable node, `/dev/mapper/NAME`.
    pub(super) node: PathBuf,
    pub(super) paths: Vec<String>,
}

pub(super) struct MapPartition {
    /// The kernel's name of the partition of the map, such as `dm-1`.
    pub(super) name: String,
    /// Its stable node, `/dev/mapper/NAME`.
    pub(super) node: PathBuf,
    /// The directory in sysfs of the same partition on one of the paths.
    pub(super) on_path: PathBuf,
}

pub(super) fn maps(sys: &Path) -> Vec<MultipathMap> {
    let block = sys.join("block");
    let maps = names(&block).into_iter().filter(|name| name.starts_with("dm-")).filter_map(|name| {
        let place = block.join(&name);
        let mapped = attribute(&place.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-"));
        let node = mapper(&place).filter(|_| mapped)?;
        Some(MultipathMap { node, paths: names(&place.join("slaves")), name })
    });
    maps.collect()
}

/// The node of a map, by the name that its user gave it.
fn mapper(place: &Path) -> Option<PathBuf> {
    Some(Path::new("/dev/mapper").join(attribute(&place.join("dm/name"))?))
}

/// A path to the disk.
pub(super) fn disk_path(name: &str, links: Vec<PathBuf>) -> DiskPath {
    DiskPath { name: name.to_owned(), path: node(name), links }
}

/// The partitions of a map. sysfs does not have their starts, but the kernel has read the same table on a path; a partition that
/// no path has is only one of the map's holders.
pub(super) fn partitions(sys: &Path, map: &MultipathMap) -> Vec<MapPartition> {
    let block = sys.join("block");
    let holders = names(&block.join(&map.name).join("holders"));
    let found = holders.into_iter().filter_map(|name| {
        let uuid = attribute(&block.join(&name).join("dm/uuid"))?;
        let number: u64 = uuid.strip_prefix("part")?.split_once('-')?.0.parse().ok()?;
        let on_path = map.paths.iter().find_map(|path| numbered(&block.join(path), number))?;
        Some(MapPartition { node: mapper(&block.join(&name))?, name, on_path })
    });
    found.collect()
}

/// The directory of the partition with this number.
fn numbered(disk: &Path, wanted: u64) -> Option<PathBuf> {
    let children = names(disk).into_iter().map(|name| disk.join(name));
    children.into_iter().find(|child| number(&child.join("partition")) == Some(wanted))
}
