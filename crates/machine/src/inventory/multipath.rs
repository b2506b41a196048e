//! Multipath disks: the device mapper's map is the disk, and the disks below it are its paths.
//!
//! multipathd gives its maps identities that begin with `mpath-`; the partitions of a map are maps too, with identities such as
//! `part1-mpath-...` (multipath-tools, libmultipath/devmapper.h; kpartx).

use std::path::{Path, PathBuf};

use super::disk::DiskPath;
use super::sysfs::{attribute, names, node, number};

/// The beginning of the identity of a map.
pub(crate) const MAP: &str = "mpath-";

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
    /// Its number in the partition table.
    pub(super) number: u32,
    /// The directory in sysfs of the same partition on one of the paths; none once udev has removed it there.
    pub(super) on_path: Option<PathBuf>,
}

pub(super) fn maps(sys: &Path) -> Vec<MultipathMap> {
    let block = sys.join("block");
    let maps = names(&block).into_iter().filter(|name| name.starts_with("dm-")).filter_map(|name| {
        let place = block.join(&name);
        let mapped = attribute(&place.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with(MAP));
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

/// The partitions of a map. sysfs does not have their starts: those are in the partition table, and as long as Debian's udev rule has not
/// removed them there, in the directories of the same partitions on the paths.
pub(super) fn partitions(sys: &Path, map: &MultipathMap) -> Vec<MapPartition> {
    let block = sys.join("block");
    let found = map_partitions(&block, &map.name).into_iter().filter_map(|(number, name)| {
        let on_path = map.paths.iter().find_map(|path| numbered(&block.join(path), number.into()));
        Some(MapPartition { node: mapper(&block.join(&name))?, name, number, on_path })
    });
    found.collect()
}

/// The devices that kpartx has made of the partitions of a map: number and kernel name. `block` is a directory of sysfs with all of them.
#[must_use]
pub fn map_partitions(block: &Path, map: &str) -> Vec<(u32, String)> {
    let holders = names(&block.join(map).join("holders")).into_iter();
    holders.filter_map(|name| Some((partition_number(block, &name)?, name))).collect()
}

/// The number of a device that is a partition of a map.
fn partition_number(block: &Path, name: &str) -> Option<u32> {
    let uuid = attribute(&block.join(name).join("dm/uuid"))?;
    let (number, map) = uuid.strip_prefix("part")?.split_once('-')?;
    map.starts_with(MAP).then(|| number.parse().ok())?
}

/// The kernel name of the disk of a partition that the kernel shows itself.
#[must_use]
pub fn partition_disk(root: &Path, name: &str) -> Option<String> {
    let place = root.join("sys/class/block").join(name).canonicalize().ok()?;
    let disk = place.parent().filter(|_| place.join("partition").exists())?;
    Some(disk.file_name()?.to_str()?.to_owned())
}

/// The map that a device of kpartx is a partition of; `None` for other devices.
#[must_use]
pub fn map_of_partition(block: &Path, name: &str) -> Option<String> {
    partition_number(block, name)?;
    names(&block.join(name).join("slaves")).into_iter().next()
}

/// The directory of the partition with this number.
fn numbered(disk: &Path, wanted: u64) -> Option<PathBuf> {
    let children = names(disk).into_iter().map(|name| disk.join(name));
    children.into_iter().find(|child| number(&child.join("partition")) == Some(wanted))
}
