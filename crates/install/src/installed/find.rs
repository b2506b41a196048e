//! Finding disks with a finished node in an inventory.

use std::path::PathBuf;

use crate::plan::{Partition, PartitionName, SectorSize};
use base::size::ByteSize;
use machine::inventory::{Disk, FoundPartition, SignatureKind};
use model::boot::Slot;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    pub disk: PathBuf,
    /// Size, model and serial number in one line.
    pub description: String,
    pub sector: SectorSize,
    pub esp: Partition,
    /// Its slots: a, b and recovery.
    pub slots: Vec<(Slot, Partition)>,
    /// The first byte of its configuration partition.
    pub config: ByteSize,
}

/// The finished nodes on `disks`.
///
/// A node is recognised by the names of its partitions, and a finished one by its EFI system partition: the first sector of that
/// is the last write of an install. If that partition could not be read, the names are enough.
#[must_use]
pub fn find(disks: &[&Disk]) -> Vec<NodePlace> {
    disks.iter().filter_map(|disk| node_place(disk)).collect()
}

fn node_place(disk: &Disk) -> Option<NodePlace> {
    let named = |name: PartitionName| {
        disk.partitions.iter().find(|partition| partition.label.as_deref() == Some(name.as_str()))
    };
    let (esp, config) = (named(PartitionName::Esp)?, named(PartitionName::Config)?);
    named(PartitionName::RootA)?;
    named(PartitionName::Persistent)?;
    (is_committed(esp) || disk.unread.is_some()).then_some(())?;
    let partition = |name| {
        let found = named(name)?;
        let entry = found.entry?;
        Some(Partition { number: entry.number, name, uuid: entry.uuid, start: found.start, size: found.size })
    };
    Some(NodePlace {
        disk: disk.path.clone(),
        description: disk.describe(),
        sector: SectorSize::try_from(disk.logical_sector).ok()?,
        esp: partition(PartitionName::Esp)?,
        slots: Slot::ALL.into_iter().filter_map(|slot| Some((slot, partition(slot.into())?))).collect(),
        config: config.start,
    })
}

fn is_committed(esp: &FoundPartition) -> bool {
    esp.signatures.iter().any(|found| found.kind == SignatureKind::Vfat)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::tests::{disk, found};
    use machine::inventory::{FoundEntry, Signature};

    /// A disk with the partitions of a node, finished or not.
    pub(crate) fn node(name: &str, finished: bool) -> Disk {
        let names = ["bios", "esp", "config", "root-a", "root-b", "recovery", "persistent", "data"];
        let mut disk = disk(name, ByteSize::gib(32));
        disk.partitions =
            (1..).zip(names).map(|(number, label)| found(name, number, Some(label), None)).collect();
        for (number, partition) in (1..).zip(&mut disk.partitions) {
            let kind = PartitionName::Esp.type_guid();
            let uuid = uuid::Uuid::from_u128(u128::from(number));
            partition.entry = Some(FoundEntry { number, kind, uuid });
        }
        if finished {
            let fat = Signature {
                kind: SignatureKind::Vfat,
                label: Some("NQRUST_ESP".into()),
                uuid: None,
                offset: 82,
            };
            disk.partitions[1].signatures.push(fat);
        }
        disk
    }

    #[test]
    fn a_finished_node_is_found_and_the_beginning_of_an_install_is_none() {
        let (node, unfinished, empty) =
            (node("vda", true), node("vdb", false), disk("vdc", ByteSize::gib(32)));
        let places = find(&[&node, &unfinished, &empty]);
        let [place] = &places[..] else { panic!("{places:?}") };
        assert_eq!(place.disk, PathBuf::from("/dev/vda"));
        assert_eq!((place.esp.number, place.esp.start), (2, node.partitions[1].start));
        assert_eq!(place.config, node.partitions[2].start);
    }

    #[test]
    fn what_could_not_be_looked_at_counts_as_finished() {
        let mut disk = node("vda", false);
        disk.unread = Some("/dev/vda2: Input/output error".into());
        assert_eq!(find(&[&disk]).len(), 1);
    }

    #[test]
    fn a_disk_for_data_and_a_disk_of_another_system_are_no_nodes() {
        let mut data = disk("vdb", ByteSize::gib(8));
        data.partitions = vec![found("vdb", 1, Some("data"), Some("HARV_LH_DEFAULT"))];
        let mut other = node("vdc", true);
        other
            .partitions
            .iter_mut()
            .for_each(|part| part.label = part.label.take().filter(|name| name != "config"));
        assert_eq!(find(&[&data, &other]), []);
    }
}
