//! Keeping the data partition through a reinstall.
//!
//! Nothing writes between its first byte and its last: every write to the disk passes a [`KeptGuard`]. Before the first write the
//! new table is made in memory and compared with the old one ([`KeptCheck::rehearse`]). The old table stays until the new one is
//! written over it, one copy at a time, so that at every moment one intact copy names the partition, and a run that begins again
//! after a power cut finds it.

use std::io;
use std::ops::Range;

use anyhow::{Result, anyhow};

use crate::execute::disk::boot_code::NEXT_DEVICE;
use crate::execute::disk::device::{self, AlignedBuffer, BlockDevice, Layer};
use crate::execute::disk::overlay::Overlay;
use crate::execute::disk::table;
use crate::execute::disk::wipe;
use crate::plan::{DATA_LABEL, KeptPartition, Partition, PartitionName, Plan};
use base::digest::Digest;
use base::failure::{Class, Failure};
use formats::partition_table::{self, PartitionEntry, PartitionTables};
use machine::inventory::FoundPartition;

/// The bytes at either end of a file system that show that it is untouched: the superblock and the first of its structures, and
/// what other formats keep at the end.
const EDGE_BYTES: u64 = 1 << 20;

/// A disk with a range that cannot be written.
pub(crate) struct KeptGuard<'a> {
    inner: &'a dyn BlockDevice,
    kept: Range<u64>,
}

impl<'a> KeptGuard<'a> {
    /// Protects what the plan keeps on this disk.
    pub(crate) fn new(inner: &'a dyn BlockDevice, kept: Option<&KeptPartition>) -> Self {
        Self { inner, kept: kept.map(range).unwrap_or_default() }
    }
}

impl Layer for KeptGuard<'_> {
    fn below(&self) -> &dyn BlockDevice {
        self.inner
    }

    fn write_through(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if offset < self.kept.end && self.kept.start < end {
            let what =
                format!("a write of {} bytes at byte {offset} would overwrite what is kept", bytes.len());
            return Err(io::Error::other(Failure::new(Class::Unexpected, what)));
        }
        self.inner.write_at(offset, bytes)
    }
}

fn range(kept: &KeptPartition) -> Range<u64> {
    let FoundPartition { start, size, .. } = kept.partition;
    start.get()..(start + size).get()
}

/// What is kept, and its fingerprint before the first write.
pub(crate) struct KeptCheck<'p> {
    kept: &'p KeptPartition,
    fingerprint: Digest,
}

impl<'p> KeptCheck<'p> {
    /// Fingerprints what is kept on `device`, the system's disk, and makes the new table in memory. Writes nothing.
    pub(crate) fn rehearse(
        plan: &'p Plan,
        kept: &'p KeptPartition,
        device: &dyn BlockDevice,
    ) -> Result<Self> {
        let keeper = Self::look(kept, device)?;
        let overlay = Overlay::new(device);
        let stage = KeptGuard::new(&overlay, Some(kept));
        let rehearsed = (|| {
            erase(plan, &stage)?;
            replace_table(plan, &stage)?;
            table::verify(&stage, plan.disk_guid, &plan.partitions)?;
            keeper.check(&stage)
        })();
        rehearsed.map_err(|error| {
            let what = format!("the rehearsal of keeping {} failed", kept.partition.describe());
            Failure::new(Class::Hardware, what).because(anyhow!("{error:#}"))
        })?;
        Ok(keeper)
    }

    /// Fingerprints what is kept on a disk of its own, which is not changed.
    pub(crate) fn apart(kept: &'p KeptPartition, device: &dyn BlockDevice) -> Result<Self> {
        let keeper = Self::look(kept, device)?;
        if tables(device).primary.is_none() {
            let path = kept.disk.path.display();
            let what = format!("the first copy of the partition table on {path} is damaged");
            let hint = format!("Repair it with: sgdisk -e {path}");
            return Err(Failure::new(Class::Hardware, what).hint(hint).into());
        }
        Ok(keeper)
    }

    fn look(kept: &'p KeptPartition, device: &dyn BlockDevice) -> Result<Self> {
        let fingerprint = fingerprint(kept, device)?;
        let keeper = Self { kept, fingerprint };
        keeper.entry(tables(device).valid().map(|table| table.entries.as_slice()))?;
        Ok(keeper)
    }

    /// Checks that the table names what is kept, and that this is unchanged.
    pub(crate) fn check(&self, device: &dyn BlockDevice) -> Result<()> {
        self.entry(tables(device).valid().map(|table| table.entries.as_slice()))?;
        if fingerprint(self.kept, device)? == self.fingerprint {
            return Ok(());
        }
        let what = format!("{} has changed since the install began", self.kept.partition.describe());
        Err(Failure::new(Class::DiskIo, what)
            .hint(
                "Stop any other program that uses the disk. If there is none, the disk is unreliable: \
                replace it.",
            )
            .into())
    }

    /// Fails if the entry of what is kept is missing.
    fn entry(&self, entries: Option<&[PartitionEntry]>) -> Result<()> {
        let FoundPartition { start, size, .. } = self.kept.partition;
        let same =
            |entry: &&PartitionEntry| (entry.uuid, entry.start, entry.size) == (self.kept.uuid, start, size);
        if entries.and_then(|entries| entries.iter().find(same)).is_some() {
            return Ok(());
        }
        let path = self.kept.disk.path.display();
        let what = format!("the partition table on {path} does not name {}", self.kept.partition.describe());
        Err(Failure::new(Class::Hardware, what).hint("Start the install again.").into())
    }
}

/// Fingerprints what the plan keeps, on the system's disk or on a separate one, and rehearses the keeping. Writes nothing.
pub(crate) fn rehearse<'p>(
    plan: &'p Plan,
    device: &dyn BlockDevice,
    apart: Option<&dyn BlockDevice>,
) -> Result<Option<KeptCheck<'p>>> {
    let looked = match (&plan.kept, apart) {
        (None, _) => return Ok(None),
        (Some(kept), Some(apart)) => KeptCheck::apart(kept, apart),
        (Some(kept), None) => KeptCheck::rehearse(plan, kept, device),
    };
    looked.map(Some)
}

/// Makes the disk unbootable and the new partitions empty, with the old table in force: first the boot code, then the EFI system
/// partitions, each alone, so that until then the whole old system boots; then the rest.
pub(crate) fn erase(plan: &Plan, device: &dyn BlockDevice) -> Result<()> {
    let sector = device.sector();
    let mut first = AlignedBuffer::new(usize::try_from(sector.bytes())?);
    device::read(device, 0, &mut first)?;
    first[..NEXT_DEVICE.len()].copy_from_slice(&NEXT_DEVICE);
    device::write(device, 0, &first)?;
    device::barrier(device)?;
    let empty = AlignedBuffer::new(first.len());
    let esp = PartitionName::Esp.type_guid();
    let (firmware, rest): (Vec<_>, Vec<_>) =
        plan.erased.iter().partition(|part| part.entry.is_some_and(|entry| entry.kind == esp));
    let stays = |start| plan.partitions.iter().any(|part| part.start == start && plan.stays(part.name));
    for partitions in [firmware, rest] {
        for old in partitions.into_iter().filter(|old| !stays(old.start)) {
            device::write(device, old.start.get(), &empty)?;
        }
        device::barrier(device)?;
    }
    let emptied = |part: &&Partition| part.name != PartitionName::Data && !plan.stays(part.name);
    wipe::edges(device, plan.partitions.iter().filter(emptied))?;
    // Between the tables and the partitions there may be signatures of formats that once covered the whole disk.
    let kept = plan.kept_here().map(range).unwrap_or_default();
    let table = table::length(sector);
    let end = device.size().get();
    wipe::erase(device, table..EDGE_BYTES)?;
    wipe::erase(device, kept.end.max(end - EDGE_BYTES)..end - (table - sector.bytes()))?;
    device::barrier(device)
}

/// Writes the new table over the old one. First the copy that is not the only intact one, then the other: if a write is cut off,
/// one of them is intact, and both name what is kept.
pub(crate) fn replace_table(plan: &Plan, device: &dyn BlockDevice) -> Result<()> {
    let staged = Overlay::new(device);
    table::write(&staged, plan.disk_guid, &plan.partitions)?;
    let sector = device.sector();
    let (front, size) = (table::length(sector), device.size().get());
    let back = front - sector.bytes();
    let copies = [size - back..size, 0..front];
    let in_order = if tables(device).primary.is_some() { [0, 1] } else { [1, 0] };
    for copy in in_order {
        let place = &copies[copy];
        let mut bytes = AlignedBuffer::new(usize::try_from(place.end - place.start)?);
        device::read(&staged, place.start, &mut bytes)?;
        device::write(device, place.start, &bytes)?;
        device::barrier(device)?;
    }
    Ok(())
}

fn tables(device: &dyn BlockDevice) -> PartitionTables {
    let read = |offset: u64, buffer: &mut [u8]| device.read_at(offset, buffer);
    partition_table::read(&read, device.size(), device.sector().bytes())
}

/// The hash of both ends of what is kept. Refuses anything but a file system for data.
fn fingerprint(kept: &KeptPartition, device: &dyn BlockDevice) -> Result<Digest> {
    let Range { start, end } = range(kept);
    let length = EDGE_BYTES.min(end - start);
    let mut bytes = AlignedBuffer::new(usize::try_from(length)? * 2);
    let (first, last) = bytes.split_at_mut(usize::try_from(length)?);
    device::read(device, start, first)?;
    device::read(device, end - length, last)?;
    // The superblock begins at byte 1024 (Documentation/filesystems/ext4/super.rst).
    let superblock = first.get(1024..2048).unwrap_or_default();
    let label = superblock.get(0x78..0x88).unwrap_or_default();
    let labelled =
        label.strip_prefix(DATA_LABEL.as_bytes()).is_some_and(|rest| rest.iter().all(|byte| *byte == 0));
    if superblock.get(0x38..0x3a) != Some(&[0x53, 0xef]) || !labelled {
        let what =
            format!("{} has no ext4 file system with the label {DATA_LABEL}", kept.partition.describe());
        return Err(Failure::new(Class::Hardware, what).hint("Start the install again.").into());
    }
    Ok(Digest::of(&bytes))
}
