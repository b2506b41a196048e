//! The new partitions of every disk that an install writes the node to.

use uuid::Uuid;

use super::disk_roles::DiskRoles;
use super::disk_search::SYSTEM;
use super::disks::{self, DataDisk};
use super::layout::{self, LayoutRequest, Partition, PartitionName};
use super::mirror::{self, Mirror};
use super::target::refuse;
use base::failure::Failure;
use base::size::ByteSize;
use machine::inventory::{FoundPartition, Inventory};
use model::config::sizes::PartitionSizes;
use model::config::{Install, Role};

/// What becomes of the disks of the system and of the data.
pub(super) struct NewLayout {
    pub(super) disk_guid: Uuid,
    pub(super) partitions: Vec<Partition>,
    /// The partitions that are lost on that disk.
    pub(super) erased: Vec<FoundPartition>,
    pub(super) mirror: Option<Mirror>,
    /// The data disk, if that is a separate one and is written.
    pub(super) data_disk: Option<DataDisk>,
}

impl NewLayout {
    /// # Errors
    /// A disk has no room for its partitions.
    pub(super) fn of(
        install: &Install,
        inventory: &Inventory,
        roles: &DiskRoles<'_>,
        disk_guid: Uuid,
    ) -> Result<Self, Failure> {
        let disks = &roles.chosen;
        let (system, mirror) = (disks.system, disks.mirror);
        let sizes = PartitionSizes::of(install.profile);
        let request = LayoutRequest {
            disk: mirror.map_or(system.size, |mirror| mirror.size.min(system.size)),
            sector: roles.target.sector,
            sizes,
            persistent: install.persistent_partition_size.filter(|_| disks.data.is_none()),
            data: install.own_role() != Role::Witness && disks.data.is_none(),
            spare: mirror.map_or_else(ByteSize::default, |_| mirror::SPARE),
        };
        let kept = roles.kept_beside_system();
        let arranged = match kept {
            Some(kept) => layout::arrange_before(request, kept.stays(), disk_guid),
            None => layout::arrange(request, disk_guid),
        };
        let partitions = arranged.map_err(|error| refuse(system, inventory, error, SYSTEM))?;
        let lost = |part: &&FoundPartition| kept.is_none_or(|kept| kept.partition != **part);
        let erased = system.partitions.iter().filter(lost).cloned().collect();
        let mirror =
            mirror.map(|mirror| mirror::arrange(mirror, inventory, request, disk_guid)).transpose()?;
        let data_disk = roles.new_data_disk();
        let data_disk =
            data_disk.map(|data| disks::arrange(data, inventory, sizes, disk_guid)).transpose()?;
        Ok(Self { disk_guid, partitions, erased, mirror, data_disk })
    }

    pub(super) fn partition(&self, name: PartitionName) -> Option<&Partition> {
        all_partitions(&self.partitions, self.data_disk.as_ref()).find(|partition| partition.name == name)
    }

    /// The partitions of the system with the sizes that can be stored in them.
    pub(super) fn storable(&self) -> Vec<Partition> {
        match &self.mirror {
            Some(_) => mirror::within_arrays(&self.partitions),
            None => self.partitions.clone(),
        }
    }
}

/// The new partitions of the disk of the system and of that of the data.
pub(super) fn all_partitions<'a>(
    system: &'a [Partition],
    data: Option<&'a DataDisk>,
) -> impl Iterator<Item = &'a Partition> {
    system.iter().chain(data.into_iter().flat_map(|data| &data.partitions))
}
