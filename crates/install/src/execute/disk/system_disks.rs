//! The disks of the system: one, or the two halves of a mirror.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use uuid::Uuid;

use super::device::BlockDevice;
use super::held_sector::HeldSector;
use crate::plan::{Partition, PartitionName, Plan, Target};
use base::size::ByteSize;

/// One disk of the system, unbootable until its [`HeldSector::commit`].
pub(crate) struct SystemDisk<'a> {
    pub(crate) device: HeldSector<'a>,
    pub(crate) target: &'a Target,
    pub(crate) guid: Uuid,
    pub(crate) partitions: &'a [Partition],
}

impl SystemDisk<'_> {
    pub(crate) fn partition(&self, name: PartitionName) -> Result<&Partition> {
        let found = self.partitions.iter().find(|partition| partition.name == name);
        found.with_context(|| format!("the plan has no partition {}", name.as_str()))
    }
}

/// All of them, as one device: writes go to each disk, reads come from the first. Partitions of one name are at the same place on
/// each.
pub(crate) struct SystemDisks<'a> {
    disks: Vec<SystemDisk<'a>>,
    committed: AtomicBool,
    /// The index of the disk that failed last, which errors are about.
    failed: AtomicUsize,
}

impl<'a> SystemDisks<'a> {
    /// `first` is the disk of the plan; `second` its mirror, if there is one.
    pub(crate) fn new(
        plan: &'a Plan,
        first: &'a dyn BlockDevice,
        second: Option<&'a dyn BlockDevice>,
    ) -> Result<Self> {
        let disk = |device, target, guid, partitions: &'a [Partition]| {
            let esp = partitions.iter().find(|partition| partition.name == PartitionName::Esp);
            let esp = esp.context("the plan has no EFI system partition")?;
            anyhow::Ok(SystemDisk {
                device: HeldSector::new(device, esp.start.get()),
                target,
                guid,
                partitions,
            })
        };
        let mut disks = vec![disk(first, &plan.disk, plan.disk_guid, &plan.partitions)?];
        if let Some((second, mirror)) = second.zip(plan.mirror.as_ref()) {
            disks.push(disk(second, &mirror.disk, mirror.disk_guid, &mirror.partitions)?);
        }
        Ok(Self { disks, committed: AtomicBool::new(false), failed: AtomicUsize::new(usize::MAX) })
    }

    /// Runs `work` on one disk after the other; if there are two, an error says on which.
    pub(crate) fn each<'b>(&'b self, mut work: impl FnMut(&'b SystemDisk<'a>) -> Result<()>) -> Result<()> {
        self.disks.iter().try_for_each(|disk| match self.disks.len() {
            1 => work(disk),
            _ => work(disk).with_context(|| format!("on {}", disk.target.path.display())),
        })
    }

    pub(crate) fn disks(&self) -> &[SystemDisk<'a>] {
        &self.disks
    }

    fn note_failure(&self, place: usize, done: io::Result<()>) -> io::Result<()> {
        if done.is_err() {
            self.failed.store(place, Ordering::Relaxed);
        }
        done
    }

    /// Makes one disk bootable after the other: a power cut in between leaves a node that starts from the first.
    pub(crate) fn commit(&self) -> Result<()> {
        self.each(|disk| {
            disk.device.commit()?;
            self.committed.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Whether at least the first disk is bootable.
    pub(crate) fn committed(&self) -> bool {
        self.committed.load(Ordering::Relaxed)
    }
}

/// From this length on the disks write in parallel.
const PARALLEL_BYTES_MIN: usize = 256 << 10;

impl BlockDevice for SystemDisks<'_> {
    fn target(&self) -> &Target {
        self.disks[0].target
    }

    fn describe(&self) -> String {
        let name = |disk: &SystemDisk<'_>| disk.device.describe();
        match self.disks.get(self.failed.load(Ordering::Relaxed)) {
            Some(failed) => name(failed),
            None => self.disks.iter().map(name).collect::<Vec<_>>().join(" and "),
        }
    }

    fn size(&self) -> ByteSize {
        self.disks.iter().map(|disk| disk.device.size()).min().unwrap_or_default()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disks.first().map_or(Ok(()), |disk| self.note_failure(0, disk.device.read_at(offset, buffer)))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let write = |(place, disk): (usize, &SystemDisk<'_>)| {
            self.note_failure(place, disk.device.write_at(offset, bytes))
        };
        if bytes.len() < PARALLEL_BYTES_MIN || self.disks.len() < 2 {
            return self.disks.iter().enumerate().try_for_each(write);
        }
        std::thread::scope(|scope| {
            let all: Vec<_> =
                self.disks.iter().enumerate().map(|disk| scope.spawn(move || write(disk))).collect();
            let died = |_| Err(io::Error::other("the thread that wrote to a disk died"));
            let done: Vec<_> = all.into_iter().map(|one| one.join().unwrap_or_else(died)).collect();
            done.into_iter().collect()
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.disks
            .iter()
            .enumerate()
            .try_for_each(|(place, disk)| self.note_failure(place, disk.device.flush()))
    }

    fn forget(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disks.iter().try_for_each(|disk| disk.device.forget(offset, length))
    }
}
