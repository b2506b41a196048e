//! The inventory as it is where multipathd runs: several paths to one disk become its map.

use std::path::{Path, PathBuf};

use super::Inventory;
use super::disk::{Disk, DiskPath};
use super::disks::remote_of_paths;
use model::config::disk::Transport;

impl Inventory {
    /// Joins the paths that no map holds, for a plan that is only shown: the live system starts multipathd before it makes its own
    /// plan. Returns what was joined, each a sentence.
    pub fn join_paths(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut left = std::mem::take(&mut self.disks);
        while !left.is_empty() {
            let first = left.remove(0);
            let (paths, others): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|disk| disk.is_path_of(&first));
            left = others;
            match map_name(&first).filter(|_| !paths.is_empty()) {
                Some(node) => {
                    let all: Vec<_> = [&first].into_iter().chain(&paths).cloned().collect();
                    let names: Vec<_> = all.iter().map(|disk| disk.path.display().to_string()).collect();
                    let map = node.display();
                    notes.push(format!("{} are paths to one disk, {map} with multipathd", names.join(", ")));
                    self.disks.push(map_of(first, &all, node));
                }
                None => self.disks.extend([first].into_iter().chain(paths)),
            }
        }
        notes
    }

    /// Whether there are several paths to a disk that multipathd could hold, and no map does.
    #[must_use]
    pub(crate) fn has_unmapped_paths(&self) -> bool {
        self.disks.iter().any(|disk| map_name(disk).is_some() && !self.other_paths(disk).is_empty())
    }
}

/// The map of these paths; what is on the disk, the first of them shows.
fn map_of(first: Disk, all: &[Disk], node: PathBuf) -> Disk {
    let name = node.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let paths = all.iter().map(|disk| DiskPath {
        name: disk.name.clone(),
        path: disk.path.clone(),
        links: disk.links.clone(),
    });
    let mut map = Disk { name, path: node.clone(), paths: paths.collect(), links: Vec::new(), ..first };
    map.remote = remote_of_paths(all.iter().map(|disk| disk.remote.clone()));
    map.boot_medium = all.iter().any(|disk| disk.boot_medium);
    map.holders = all.iter().flat_map(|disk| disk.holders.clone()).collect();
    for part in &mut map.partitions {
        let digits = part.name.len() - part.name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let number = part.name.split_at(part.name.len() - digits).1;
        part.path = format!("{}-part{number}", node.display()).into();
    }
    map
}

/// The node that multipathd gives the map of this disk: its WWID, which has the format of the name before the name itself
/// (scsi_id(8)). `None` for disks that the SCSI layer does not see several times, and for maps.
fn map_name(disk: &Disk) -> Option<PathBuf> {
    let scsi = match disk.transport {
        Transport::Scsi | Transport::Sas | Transport::Iscsi | Transport::Other => true,
        // virtio has SCSI disks too; its own are vda and so on.
        Transport::Virtio => disk.name.starts_with("sd"),
        Transport::Nvme | Transport::NvmeTcp | Transport::Usb | Transport::Ata | Transport::Mmc => false,
    };
    let wwn = disk.own_wwn().filter(|_| scsi && disk.paths.is_empty())?;
    let format = match disk.wwn.as_deref()?.to_ascii_lowercase() {
        text if text.starts_with("t10.") => return None,
        text if text.starts_with("eui.") => '2',
        _ => '3',
    };
    Some(Path::new("/dev/mapper").join(format!("{format}{wwn}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_paths_are_one_disk_at_its_map_and_each_path_leads_to_it() {
        let mut inventory: Inventory = serde_json::from_str(testing::inventories::UNMAPPED_PATHS).unwrap();
        assert!(inventory.has_unmapped_paths());
        let notes = inventory.join_paths();
        assert_eq!(notes.len(), 1, "{notes:?}");
        let map = Path::new("/dev/mapper/3600a098038303053453f463045727654");
        for path in [
            map,
            Path::new("/dev/sdd"),
            Path::new("/dev/disk/by-path/pci-0000:3b:00.3-fc-0x500a09849d-lun-0"),
        ] {
            let disk = inventory.find(path).unwrap();
            assert_eq!((disk.path.as_path(), disk.paths.len()), (map, 4));
        }
        assert_eq!(inventory.disks.len(), 3);
        assert!(!inventory.has_unmapped_paths() && inventory.join_paths().is_empty());
    }

    #[test]
    fn a_virtual_machine_sees_paths_too_and_its_own_disks_are_none() {
        let seen = |transport: Transport, name: &str| {
            let mut inventory: Inventory =
                serde_json::from_str(testing::inventories::UNMAPPED_PATHS).unwrap();
            for (index, disk) in inventory.disks.iter_mut().enumerate() {
                (disk.transport, disk.name) = (transport, format!("{name}{index}"));
            }
            inventory.has_unmapped_paths()
        };
        assert!(seen(Transport::Virtio, "sd"));
        assert!(!seen(Transport::Virtio, "vd") && !seen(Transport::Usb, "sd"));
    }

    #[test]
    fn disks_that_only_share_a_name_stay_apart() {
        let text = testing::inventories::UNFILLED_NAMES;
        let mut inventory: Inventory = serde_json::from_str(text).unwrap();
        let before = inventory.clone();
        assert!(inventory.join_paths().is_empty());
        assert_eq!(inventory, before);
    }
}
