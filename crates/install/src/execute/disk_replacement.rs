//! Writing the second disk of a mirror while the node runs from the first.
//!
//! Nothing starts from the disk until it can: its EFI system partition lacks the first sector, which is written after the arrays of the
//! system are filled and everything is read back. A run that is cut off is completed by the next one, or by the kernel as far as it is
//! filling arrays; the disk that the node runs from is only read.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use uuid::Uuid;

use super::boot::firmware;
use super::disk::boot_code::CODE_END;
use super::disk::device::{self, AlignedBuffer, BlockDevice, CHUNK_BYTES};
use super::disk::held_sector::HeldSector;
use super::disk::host::Host;
use super::disk::{mirror, table, wipe};
use super::effects::DiskOpener;
use crate::plan::{DiskReplacement, JoinedArray, Partition, PartitionName, ReplacementKind};
use base::cancel::Cancel;
use base::command::Runner;
use base::digest::{Digest, Hasher};
use base::failure::{Class, Failure};
use base::progress::Progress;
use formats::partition_table::active_entry::put_active_entry;
use machine::arrays::{ArrayState, ArrayStatus};

/// What replacing a disk works with.
#[allow(missing_debug_implementations)]
pub struct ReplacementEffects<'a> {
    /// Opens the disk that the node runs from, to read it.
    pub open_source: &'a DiskOpener<'a>,
    /// Opens the disk to be written: one that is free, or one that is in arrays already.
    pub open: &'a DiskOpener<'a>,
    pub open_in_use: &'a DiskOpener<'a>,
    pub host: &'a dyn Host,
    pub runner: &'a dyn Runner,
    /// The arrays as they are now.
    pub arrays: &'a dyn Fn() -> Vec<ArrayStatus>,
    pub progress: &'a Progress,
    pub cancel: &'a Cancel,
    /// How long to wait between two looks at the arrays.
    pub pause: Duration,
}

/// How the firmware calls the node, and the PARTUUIDs of all partitions on other disks of this machine.
#[derive(Debug)]
pub struct FirmwareEntry<'a> {
    pub title: &'a str,
    pub present: &'a [Uuid],
}

/// Makes the disk of the plan the second half of the mirror. It returns when the machine can start from it; arrays that hold data may be
/// filled for hours then, which [`await_arrays`] waits for.
///
/// # Errors
/// [`Class::DiskIo`] if a disk cannot be read or written; [`Class::Hardware`] if it is in use. Nothing starts from the disk after one.
pub fn replace_disk(
    plan: &DiskReplacement,
    entry: &FirmwareEntry<'_>,
    effects: &ReplacementEffects<'_>,
) -> Result<()> {
    let source = (effects.open_source)(&plan.source)?;
    let open = if plan.kind == ReplacementKind::New { effects.open } else { effects.open_in_use };
    let disk = open(&plan.disk)?;
    effects.cancel.check()?;
    if plan.kind == ReplacementKind::New {
        effects.progress.within("partition", "Writing the partition table", || {
            wipe::clear(&*disk, &plan.disk.signatures, &plan.erased)?;
            wipe::wipe(&*disk, &plan.partitions, &|_| false)?;
            table::write(&*disk, plan.disk_guid, &plan.partitions)?;
            device::barrier(&*disk)?;
            table::verify(&*disk, plan.disk_guid, &plan.partitions)
        })?;
    }
    let nodes = match plan.kind {
        ReplacementKind::New => effects.host.partition_nodes(&plan.disk, &plan.partitions)?,
        // The kernel reads no table of a disk that is in use, and has read this one.
        ReplacementKind::Returned | ReplacementKind::Begun => plan.nodes.clone(),
    };
    let held = HeldSector::new(&*disk, needed(&plan.partitions, PartitionName::Esp)?.start.get());
    copy_boot(plan, &*source, &held, effects)?;
    // What is read by the firmware is complete but for one sector.
    let (system, data): (Vec<_>, Vec<_>) = plan.arrays.iter().partition(|array| array.partition.is_system());
    let join = |array: &JoinedArray| {
        let member = nodes.get(&array.partition).context("a partition without a device")?;
        let again = plan.kind == ReplacementKind::Returned;
        effects.cancel.check()?;
        mirror::add(effects.runner, &Path::new("/dev").join(&array.device), member, again)
    };
    system.iter().try_for_each(|array| join(array))?;
    let system = PartitionName::ALL.into_iter().filter(|name| name.is_system());
    await_arrays(&system.collect::<Vec<_>>(), effects)?;
    effects.progress.within("commit", "Making the disk bootable", || {
        boot_sector(plan, &*source, &held)?;
        held.commit()
    })?;
    enter(plan, entry, effects);
    data.iter().try_for_each(|array| join(array))
}

/// Waits until the arrays of these partitions are whole.
///
/// # Errors
/// [`Class::DiskIo`] if the kernel gave a new member up.
pub fn await_arrays(names: &[PartitionName], effects: &ReplacementEffects<'_>) -> Result<()> {
    let wanted = |array: &&ArrayStatus| names.iter().any(|name| name.as_str() == array.name);
    let begin = Instant::now();
    let mut shown = None;
    loop {
        effects.cancel.check()?;
        let arrays = (effects.arrays)();
        let Some(unfinished) = arrays.iter().filter(wanted).find(|array| array.state != ArrayState::Whole)
        else {
            return Ok(());
        };
        // The kernel fills one after the other; those that wait have their member.
        let lost = arrays
            .iter()
            .filter(wanted)
            .find(|array| array.state != ArrayState::Whole && array.filled.is_empty());
        if let Some(lost) = lost.filter(|_| begin.elapsed() >= effects.pause * 4) {
            return Err(Failure::new(Class::DiskIo, format!("filling the array {} ended", lost.name))
                .because(lost.to_string())
                .hint("The kernel's log says what failed: journalctl -k. Replace the disk that it names.")
                .into());
        }
        let now = arrays.iter().filter(wanted).find(|array| array.percent.is_some()).unwrap_or(unfinished);
        let told = (now.name.clone(), now.percent.map(|percent| percent / 5));
        if shown.as_ref() != Some(&told) {
            effects.progress.note("fill", now.to_string());
            shown = Some(told);
        }
        effects.cancel.pause(pause_after(begin.elapsed(), effects.pause))?;
    }
}

/// How long to wait before arrays are looked at again: a tenth of the time that they have taken, so that hours of filling are no
/// thousands of looks, and the end of a short one is seen at once.
fn pause_after(elapsed: Duration, least: Duration) -> Duration {
    (elapsed / 10).clamp(least, least * 20)
}

/// Copies GRUB for BIOS and the EFI system partition, whose first sector is held back, and reads both back.
fn copy_boot(
    plan: &DiskReplacement,
    source: &dyn BlockDevice,
    disk: &HeldSector<'_>,
    effects: &ReplacementEffects<'_>,
) -> Result<()> {
    let names = [PartitionName::Esp, PartitionName::Bios];
    let pairs =
        names.map(|name| Ok((needed(&plan.source_partitions, name)?, needed(&plan.partitions, name)?)));
    let pairs = pairs.into_iter().collect::<Result<Vec<_>>>()?;
    let total: u64 = pairs.iter().map(|(from, _)| from.size.get()).sum();
    let mut step = effects.progress.step("esp", "Copying the boot files", Some(total));
    for (from, to) in pairs {
        let copied = each_chunk(source, from, |at, bytes| {
            effects.cancel.check()?;
            step.advance(bytes.len() as u64);
            device::write(disk, to.start.get() + at, bytes)
        })?;
        device::barrier(disk)?;
        let read = each_chunk(disk, to, |_, _| Ok(effects.cancel.check()?))?;
        if read != copied {
            return Err(device::differs(to.name.as_str(), to.start.get(), disk).into());
        }
    }
    step.done();
    Ok(())
}

/// The digest of a partition, of which `work` gets each piece with its place in the partition.
fn each_chunk(
    device: &dyn BlockDevice,
    partition: &Partition,
    mut work: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Digest> {
    let mut hasher = Hasher::default();
    let mut buffer = AlignedBuffer::new(CHUNK_BYTES);
    let mut at = 0;
    while at < partition.size.get() {
        let length = usize::try_from((partition.size.get() - at).min(CHUNK_BYTES as u64))?;
        device::read(device, partition.start.get() + at, &mut buffer[..length])?;
        hasher.update(&buffer[..length]);
        work(at, &buffer[..length])?;
        at += length as u64;
    }
    Ok(hasher.finish())
}

/// The code that a BIOS starts, as the other disk has it: GRUB's core is at the same place of both.
fn boot_sector(plan: &DiskReplacement, source: &dyn BlockDevice, disk: &HeldSector<'_>) -> Result<()> {
    let length = usize::try_from(plan.disk.sector.bytes())?;
    let [mut from, mut to] = [AlignedBuffer::new(length), AlignedBuffer::new(length)];
    device::read(source, 0, &mut from)?;
    device::read(disk, 0, &mut to)?;
    to[..CODE_END].copy_from_slice(&from[..CODE_END]);
    let active = |sector: &[u8]| (446..510).step_by(16).any(|entry| sector[entry] == 0x80);
    if active(&from) && !active(&to) {
        put_active_entry(&mut to[..512]);
    }
    device::write_checked(disk, 0, &to, "the boot code")
}

/// Tells the firmware of the disk. It starts it without an entry too, so a failure is only a warning.
fn enter(plan: &DiskReplacement, entry: &FirmwareEntry<'_>, effects: &ReplacementEffects<'_>) {
    let Some(variables) = effects.host.firmware_variables() else { return };
    let entered = (|| {
        let [own, source] = [&plan.partitions, &plan.source_partitions]
            .map(|partitions| needed(partitions, PartitionName::Esp));
        let own = own?;
        let present: Vec<_> = entry.present.iter().copied().chain([own.uuid]).collect();
        firmware::enter_behind(&variables, entry.title, (own, plan.disk.sector), source?.uuid, &present)
    })();
    let path = plan.disk.path.display();
    effects.progress.note(
        "run",
        match entered {
            Ok(()) => format!("The firmware starts {path} if the other disk is missing, as {}", entry.title),
            Err(error) => format!("The firmware has no entry for {path}: {error:#}"),
        },
    );
}

fn needed(partitions: &[Partition], name: PartitionName) -> Result<&Partition> {
    let found = partitions.iter().find(|partition| partition.name == name);
    found.with_context(|| format!("the disk has no partition {}", name.as_str()))
}

/// Whether a disk that was away has been started alone meanwhile, so that what it has is no older state of the mirror: one of its arrays
/// says so.
///
/// # Errors
/// The disk cannot be read.
pub fn was_started_alone(plan: &DiskReplacement, disk: &dyn BlockDevice) -> Result<bool> {
    for array in &plan.arrays {
        if mirror::ran_alone(disk, needed(&plan.partitions, array.partition)?)? {
            return Ok(true);
        }
    }
    Ok(false)
}
