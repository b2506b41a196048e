//! Growth on the first start: a machine's disk is larger than the image that was copied to it.
//!
//! The first copy of the partition table, which is the one that the kernel reads, is whole after every write
//! ([`formats::partition_table::growth`]): whatever comes between, the machine starts, and the next start goes on. File systems grow while
//! they are mounted.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::execute::disk::device::BlockDevice;
use crate::execute::disk::table;
use crate::plan::{Partition, PartitionName, SectorSize, layout};
use base::command::{Invocation, Runner};
use base::size::ByteSize;
use machine::inventory::Disk;

/// A file system of many TiB.
const LIMIT: Duration = Duration::from_secs(1800);

/// The last partition of a node's disk, and the room behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    /// All of the disk, the last one with its new size.
    partitions: Vec<Partition>,
    disk: PathBuf,
}

impl Growth {
    /// What can grow on `disk`; `None` if its partitions are not those of one node, or fill it.
    pub fn of(disk: &Disk) -> Option<Self> {
        let sector = SectorSize::try_from(disk.logical_sector).ok()?;
        let mut partitions = disk.partitions.iter().map(Partition::of).collect::<Option<Vec<_>>>()?;
        partitions.sort_by_key(|partition| partition.start);
        let last = partitions.last_mut()?;
        let grows = matches!(last.name, PartitionName::Data | PartitionName::Persistent);
        let end = layout::end(disk.size, sector);
        let room = end.saturating_sub(last.end());
        if !grows || room < layout::ALIGNMENT {
            return None;
        }
        last.size = last.size + room;
        Some(Self { partitions, disk: disk.path.clone() })
    }

    #[must_use]
    pub fn size(&self) -> ByteSize {
        self.partitions.last().map(|last| last.size).unwrap_or_default()
    }

    #[must_use]
    pub fn name(&self) -> &'static str {
        self.partitions.last().map_or("", |last| last.name.as_str())
    }

    /// Makes the partition larger, on the disk and for the kernel.
    pub fn grow_partition(&self, device: &dyn BlockDevice, runner: &dyn Runner) -> Result<()> {
        table::extend(device, &self.partitions)?;
        let number = self.partitions.last().map(|last| last.number).unwrap_or_default().to_string();
        let tell = Invocation::new("partx").args(["--update", "--nr", &number]).arg(&self.disk);
        runner.run(&tell).map(drop).context("telling the kernel")
    }
}

/// Lets the mounted file system on `node` fill its partition; nothing where it does.
pub fn grow_filesystem(node: &std::path::Path, runner: &dyn Runner) -> Result<()> {
    let grow = Invocation::new("resize2fs").arg(node).limit(LIMIT);
    runner.run(&grow).map(drop).with_context(|| format!("growing the file system on {}", node.display()))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use formats::partition_table;

    use super::*;
    use crate::execute::disk::device::Layer;
    use crate::execute::disk_image::DiskFile;
    use crate::plan::tests::{GUID, disk, release, trial};
    use formats::partition_table::active_entry::put_active_entry;
    use machine::inventory::{FoundEntry, FoundPartition, Inventory};

    /// A disk with the partitions of a node, and the plan that made them.
    fn image() -> (Disk, Vec<Partition>) {
        let small = disk("vda", ByteSize::gib(16));
        let inventory = Inventory { disks: vec![small.clone()], ..Inventory::default() };
        let plan = crate::plan::plan(&trial(), &inventory, &release().into(), GUID).unwrap();
        let found = |partition: &Partition| FoundPartition {
            name: format!("vda{}", partition.number),
            path: format!("/dev/vda{}", partition.number).into(),
            start: partition.start,
            size: partition.size,
            entry: Some(FoundEntry {
                number: partition.number,
                kind: partition.name.type_guid(),
                uuid: partition.uuid,
            }),
            label: Some(partition.name.as_str().into()),
            signatures: vec![],
            links: vec![],
        };
        (Disk { partitions: plan.partitions.iter().map(found).collect(), ..small }, plan.partitions)
    }

    /// The file as this disk.
    fn open(file: &tempfile::NamedTempFile, disk: &Disk) -> DiskFile {
        let inventory =
            Inventory { disks: vec![Disk { partitions: vec![], ..disk.clone() }], ..Inventory::default() };
        let target = crate::plan::plan(&trial(), &inventory, &release().into(), GUID).unwrap().disk;
        DiskFile::new(file.reopen().unwrap(), &target).unwrap()
    }

    #[test]
    fn only_the_last_partition_of_a_nodes_disk_grows_and_only_where_there_is_room() {
        let (full, partitions) = image();
        assert_eq!(Growth::of(&full), None);
        let large = Disk { size: ByteSize::gib(40), ..full };
        let growth = Growth::of(&large).unwrap();
        assert_eq!((growth.name(), growth.disk.to_str()), ("data", Some("/dev/vda")));
        assert_eq!(growth.partitions.last().unwrap().number, 8);
        let before = partitions.last().unwrap().size;
        assert_eq!(growth.size(), before + ByteSize::gib(24));
        assert_eq!(growth.partitions[..7], partitions[..7]);
        let mut foreign = large;
        foreign.partitions[4].label = Some("home".into());
        assert_eq!(Growth::of(&foreign), None);
    }

    #[test]
    fn a_table_grows_in_place_keeps_its_boot_sector_and_can_be_grown_again() {
        let (small, partitions) = image();
        let file = tempfile::NamedTempFile::new().unwrap();
        let device = open(&file, &small);
        table::write(&device, GUID, &partitions).unwrap();
        let mut first = vec![0; 512];
        device.read_at(0, &mut first).unwrap();
        first[..446].fill(7);
        put_active_entry(&mut first);
        device.write_at(0, &first).unwrap();
        let large = Disk { size: ByteSize::gib(40), ..small };
        let (device, growth) = (open(&file, &large), Growth::of(&large).unwrap());
        for _ in 0..2 {
            table::extend(&device, &growth.partitions).unwrap();
            table::verify(&device, GUID, &growth.partitions).unwrap();
        }
        let mut after = vec![0; 512];
        device.read_at(0, &mut after).unwrap();
        assert_eq!(after[..446], first[..446]);
        assert_eq!(after[462..], first[462..], "the active entry stays");
        assert_eq!(after[458..462], (ByteSize::gib(40).get() / 512 - 1).to_le_bytes()[..4]);
    }

    #[test]
    fn a_growth_that_was_cut_off_after_any_write_is_finished_by_the_next() {
        let (small, partitions) = image();
        let large = Disk { size: ByteSize::gib(40), ..small.clone() };
        let growth = Growth::of(&large).unwrap();
        for cut in 0.. {
            let file = tempfile::NamedTempFile::new().unwrap();
            table::write(&open(&file, &small), GUID, &partitions).unwrap();
            let device = CutOff { disk: open(&file, &large), left: AtomicUsize::new(cut) };
            let done = table::extend(&device, &growth.partitions);
            let read = |offset, buffer: &mut [u8]| device.read_at(offset, buffer);
            let found = partition_table::read(&read, large.size, 512).primary.unwrap();
            assert_eq!(found.entries.len(), partitions.len(), "after {cut} writes");
            table::extend(&device.disk, &growth.partitions).unwrap();
            if done.is_ok() {
                assert!(cut >= 7, "{cut} writes");
                break;
            }
        }
    }

    /// A disk that takes some more writes, and then none.
    struct CutOff {
        disk: DiskFile,
        left: AtomicUsize,
    }

    impl Layer for CutOff {
        fn below(&self) -> &dyn BlockDevice {
            &self.disk
        }
        fn write_through(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let left = self.left.load(Ordering::Relaxed);
            self.left.store(
                left.checked_sub(1).ok_or_else(|| io::Error::other("the power is gone"))?,
                Ordering::Relaxed,
            );
            self.disk.write_at(offset, bytes)
        }
    }
}
