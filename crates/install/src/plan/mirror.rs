//! The system on two disks, each of which boots without the other: software RAID 1.
//!
//! Both disks have the same partitions at the same places. What firmware reads, `bios` and `esp`, is written to each disk; each
//! other partition is one half of an array. The array's metadata is at the end of its members (version 1.0), so that a member
//! reads as the plain content from its first byte.

use serde::Serialize;
use uuid::Uuid;

use super::choose::chosen;
use super::disk_search::{DiskSearch, MIRROR};
use super::disks::least;
use super::layout::{self, LayoutRequest, Partition, PartitionName};
use super::target::{Target, refuse, target};
use base::failure::{Class, Failure};
use base::size::ByteSize;
use machine::inventory::{Disk, FoundPartition, Inventory};
use model::config::{DiskSelector, Install};

/// The end of a member that an array does not use for content: the superblock, the bitmap, whose size follows from the array's,
/// and the list of bad blocks. They need 200 KiB at most.
const ARRAY_METADATA_ROOM: ByteSize = ByteSize::mib(1);

/// What stays free at the end of both disks, so that a disk in the place of one of them may be smaller: disks of the same nominal size
/// of other makers and series differ by some MiB.
pub(super) const SPARE: ByteSize = ByteSize::mib(100);

/// The second disk of a mirrored system, and the arrays over both.
#[derive(Clone, Debug, Serialize)]
pub struct Mirror {
    pub disk: Target,
    /// The partitions on it now, which are lost.
    pub erased: Vec<FoundPartition>,
    pub disk_guid: Uuid,
    /// The new partitions: those of the first disk, with PARTUUIDs of their own.
    pub partitions: Vec<Partition>,
    /// In the order of the partitions.
    pub arrays: Vec<Array>,
}

/// One array over the partitions of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Array {
    /// The name of both its members.
    pub partition: PartitionName,
    /// Its identity, the same at every boot.
    pub uuid: Uuid,
    /// Less than the size of its members.
    pub size: ByteSize,
}

impl Array {
    /// The identity as the md driver's programs and udev write it: four groups of eight digits.
    #[must_use]
    pub fn id(&self) -> String {
        model::boot::array_id(self.uuid)
    }
}

/// The disk of `install.mirror`. Refuses one that has another part in the install, and one that cannot mirror `system`.
pub(super) fn disk<'a>(
    install: &Install,
    inventory: &'a Inventory,
    system: &Disk,
    data: Option<&Disk>,
) -> Result<Option<&'a Disk>, Failure> {
    let Some(selector) = &install.mirror else { return Ok(None) };
    named_both(install.device.as_ref())?;
    let disk = chosen(DiskSearch { inventory, key: MIRROR, least: least(install, MIRROR) }, selector)?;
    let path = disk.path.display();
    if disk.name == system.name {
        let what = format!("{MIRROR} is {path}, the disk of install.device");
        return Err(Failure::new(Class::Invalid, what).hint(format!("Set {MIRROR} to another disk.")));
    }
    if data.is_some_and(|data| data.name == disk.name) {
        let what = format!("{MIRROR} is {path}, the disk of install.data_disk");
        return Err(Failure::new(Class::Invalid, what)
            .hint(format!("Set {MIRROR} to another disk, or leave out install.data_disk.")));
    }
    if data.is_none() && !install.keep.is_empty() {
        let what = format!("install.keep and {MIRROR} are set, and the data is on the disks to be mirrored");
        return Err(Failure::new(Class::Invalid, what).hint(format!(
            "Leave out install.keep or {MIRROR}; data on a disk of its own (install.data_disk) can be kept."
        )));
    }
    if disk.logical_sector != system.logical_sector {
        let what = format!(
            "{} has sectors of {} bytes and {path} of {}, so they cannot mirror each other",
            system.path.display(),
            system.logical_sector,
            disk.logical_sector
        );
        return Err(Failure::new(Class::Hardware, what)
            .hint(format!("Set {MIRROR} to a disk with the same sectors.")));
    }
    Ok(Some(disk))
}

/// Which of several disks is mirrored must not depend on what else is in the machine.
fn named_both(device: Option<&DiskSelector>) -> Result<(), Failure> {
    if device.is_some() {
        return Ok(());
    }
    Err(Failure::new(Class::Invalid, format!("{MIRROR} is set and install.device is not"))
        .hint("Set install.device to the first disk of the mirror."))
}

/// The layout of the second disk. `request` is that of the first one, for the smaller of the two.
pub(super) fn arrange(
    disk: &Disk,
    inventory: &Inventory,
    request: LayoutRequest,
    system_guid: Uuid,
) -> Result<Mirror, Failure> {
    let disk_guid = Uuid::new_v5(&system_guid, b"mirror");
    let partitions =
        layout::arrange(request, disk_guid).map_err(|error| refuse(disk, inventory, error, MIRROR))?;
    let arrays = partitions.iter().filter(|partition| is_mirrored(partition.name)).map(|partition| Array {
        partition: partition.name,
        uuid: Uuid::new_v5(&system_guid, format!("array {}", partition.name.as_str()).as_bytes()),
        size: usable(partition),
    });
    let arrays = arrays.collect();
    Ok(Mirror { disk: target(disk)?, erased: disk.partitions.clone(), disk_guid, partitions, arrays })
}

/// Firmware cannot read arrays.
pub(super) fn is_mirrored(name: PartitionName) -> bool {
    !matches!(name, PartitionName::Bios | PartitionName::Esp)
}

fn usable(partition: &Partition) -> ByteSize {
    partition.size.saturating_sub(ARRAY_METADATA_ROOM)
}

pub(super) fn within_arrays(partitions: &[Partition]) -> Vec<Partition> {
    let shorter = |partition: &Partition| match is_mirrored(partition.name) {
        true => Partition { size: usable(partition), ..partition.clone() },
        false => partition.clone(),
    };
    partitions.iter().map(shorter).collect()
}
