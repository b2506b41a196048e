//! Runs that keep the data partition, interrupted at every possible point.

use std::io;
use std::sync::Mutex;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::execute::data::keep::{erase, replace_table};
use crate::execute::disk::device::Layer;
use crate::execute::disk::overlay::Overlay;
use crate::plan::Partition;
use crate::plan::tests::found;
use base::failure::{class_of, render};
use formats::partition_table::{self, PartitionTables};
use machine::inventory::{Disk, FoundEntry, FoundPartition};
use model::config::{InstallConfig, Keep};

const NEW: Uuid = uuid::uuid!("0f7c8f57-5f39-4f6a-8f7f-4b0d5d1b2c3d");

pub(super) fn keeping() -> InstallConfig {
    let mut config = trial();
    config.install.keep = vec![Keep::Data];
    config
}

fn tables(device: &dyn BlockDevice) -> PartitionTables {
    let read = |offset: u64, buffer: &mut [u8]| device.read_at(offset, buffer);
    partition_table::read(&read, device.size(), device.sector().bytes())
}

pub(super) fn scan(device: &dyn BlockDevice, name: &str) -> Disk {
    let mut disk = disk(name, device.size());
    disk.logical_sector = device.sector().into();
    let entries = tables(device).valid().map(|table| table.entries.clone()).unwrap_or_default();
    let partition = |entry: &partition_table::PartitionEntry| {
        let mut superblock = vec![0; 8192];
        device.read_at(entry.start.get(), &mut superblock).unwrap();
        let labelled = superblock[1024..].get(0x78..0x87) == Some(b"HARV_LH_DEFAULT");
        FoundPartition {
            start: entry.start,
            size: entry.size,
            entry: Some(FoundEntry { number: entry.number, kind: entry.kind, uuid: entry.uuid }),
            ..found(name, entry.number.into(), Some(&entry.name), labelled.then_some("HARV_LH_DEFAULT"))
        }
    };
    disk.partitions = entries.iter().map(partition).collect();
    disk
}

/// Puts something like a file system for data on `length` bytes from `start`.
fn fill(device: &dyn BlockDevice, start: u64, length: u64) {
    let mut piece = vec![0xda; 1 << 20];
    for (index, byte) in piece.iter_mut().enumerate() {
        *byte = (index / 511) as u8;
    }
    piece[1024 + 0x38..1024 + 0x3a].copy_from_slice(&[0x53, 0xef]);
    piece[1024 + 0x78..1024 + 0x88].copy_from_slice(b"HARV_LH_DEFAULT\0");
    let piece = &piece[..piece.len().min(usize::try_from(length).unwrap())];
    device.write_at(start + length - piece.len() as u64, piece).unwrap();
    device.write_at(start, piece).unwrap();
}

/// The hash of all of a part that is not a hole, or of its ends.
pub(super) fn ends(device: &dyn BlockDevice, part: &FoundPartition) -> Vec<u8> {
    let length = usize::try_from(part.size.get().min(2 << 20)).unwrap();
    let (mut first, mut last) = (vec![0; length], vec![0; length]);
    device.read_at(part.start.get(), &mut first).unwrap();
    device.read_at((part.start + part.size).get() - length as u64, &mut last).unwrap();
    first.extend(last);
    first
}

/// A machine with a node on it, about to be installed again with `config`.
fn again(config: InstallConfig, sector: u32) -> Bench {
    let old = Bench::with_sector(sector);
    old.run().unwrap();
    let data = old.plan.partition(PartitionName::Data).unwrap();
    fill(&old.disk, data.start.get(), data.size.get());
    continued(old.disk, config)
}

/// The next run on a disk as an earlier run left it.
fn continued(disk: TestDisk, config: InstallConfig) -> Bench {
    let found = scan(&disk, "vda");
    let mut bench = Bench::with(&[found], config);
    bench.plan.disk_guid = NEW;
    bench.disk.file = disk.file;
    bench
}

/// Runs to a failure. The old system may still boot if nothing was written.
fn failed(bench: &Bench) -> (Class, String) {
    let error = bench.run().unwrap_err();
    (class_of(&error), render(&error))
}

#[test]
fn a_reinstall_keeps_the_data_partition_byte_for_byte() {
    for sector in [512, 4096] {
        let bench = again(keeping(), sector);
        let kept = bench.plan.kept_here().unwrap().clone();
        let before = ends(&bench.disk, &kept.partition);
        bench.run().unwrap();
        assert!(bench.disk.committed());
        assert!(ends(&bench.disk, &kept.partition) == before, "{sector}");
        let found = scan(&bench.disk, "vda");
        assert_eq!(found.partitions[7], kept.partition);
        assert_eq!(tables(&bench.disk).primary, tables(&bench.disk).backup);
        let (start, end) = (kept.partition.start.get(), (kept.partition.start + kept.partition.size).get());
        let into = |act: &Act| matches!(act, Act::Write { offset, length, .. } if *offset < end && start < offset + *length as u64);
        assert!(!bench.acts().iter().any(into));
        assert!(!bench.runner.commands().iter().any(|made| made.contains("HARV_LH_DEFAULT")));
    }
}

#[test]
fn a_write_that_fails_leaves_the_data_to_the_next_run() {
    let whole = again(keeping(), 512);
    let before = ends(&whole.disk, &whole.plan.kept_here().unwrap().partition);
    whole.run().unwrap();
    let count = whole.disk.writes.load(Ordering::Relaxed);
    // Writes around the barriers up to the last of the table. Until the second one the old loader is intact.
    for number in [0, 1, 2, 20, 25, 26, 27, count - 2] {
        let mut bench = again(keeping(), 512);
        bench.disk.fail_write = Some(number);
        let (class, text) = failed(&bench);
        assert_eq!(class, Class::DiskIo, "write {number} of {count}: {text}");
        assert!(text.contains("The data that install.keep names is unchanged."), "{text}");
        assert!(number < 2 || !bench.disk.committed(), "write {number} of {count}");
        let next = continued(bench.disk, keeping());
        next.run().unwrap();
        let kept = &next.plan.kept_here().unwrap().partition;
        assert!(ends(&next.disk, kept) == before && next.disk.committed(), "write {number}");
    }
}

#[test]
fn data_that_changes_meanwhile_stops_the_install_before_the_table() {
    let mut bench = again(keeping(), 512);
    let kept = bench.plan.kept_here().unwrap().partition.clone();
    // From here on the first byte of the file system reads as another; the rehearsal reads it too.
    bench.disk.rotten = Some(kept.start.get() + 1024 + 0x79);
    let (class, text) = failed(&bench);
    assert_eq!(class, Class::Hardware, "{text}");
    assert!(text.contains("no ext4 file system with the label HARV_LH_DEFAULT"), "{text}");
    assert!(bench.acts().is_empty());
}

#[test]
fn a_table_that_changed_since_the_plan_costs_nothing() {
    let bench = again(keeping(), 512);
    table::write(&bench.disk, GUID, &bench.plan.partitions[..7]).unwrap();
    bench.disk.acts.lock().unwrap().clear();
    let (class, text) = failed(&bench);
    assert_eq!(class, Class::Hardware, "{text}");
    assert!(text.contains("does not name /dev/vda8"), "{text}");
    assert!(bench.acts().is_empty());
}

#[test]
fn a_kept_disk_of_its_own_is_not_written_at_all() {
    let bench = || {
        let target = crate::plan::tests::disk("vdb", ByteSize::gib(16));
        let old = Bench::with(&[target], trial());
        old.run().unwrap();
        let data = old.plan.partition(PartitionName::Data).unwrap();
        fill(&old.disk, data.start.get(), data.size.get());
        let disks = [crate::plan::tests::disk("vda", ByteSize::gib(16)), scan(&old.disk, "vdb")];
        let mut config = keeping();
        config.install.data_disk = "/dev/vdb".parse().ok();
        let mut bench = Bench::with(&disks, config);
        old.disk.acts.lock().unwrap().clear();
        bench.others.insert("vdb".into(), old.disk);
        bench
    };
    let whole = bench();
    whole.run().unwrap();
    assert!(whole.disk.committed() && whole.others["vdb"].acts.lock().unwrap().is_empty());
    let (start, size) = {
        let kept = &whole.plan.kept_apart().unwrap().partition;
        (kept.start.get(), kept.size.get())
    };
    let damaged = |at: u64, told: &str| {
        let bench = bench();
        bench.others["vdb"].file().write_all_at(&[0x99; 8], at).unwrap();
        let (class, text) = failed(&bench);
        assert_eq!(class, Class::Hardware, "{text}");
        assert!(text.contains(told) && bench.acts().is_empty(), "{text}");
    };
    damaged(600, "first copy of the partition table on /dev/vdb is damaged");
    damaged(start + 1024 + 0x38, "no ext4 file system");
    assert!(size > 1 << 30);
}

/// One event on a disk.
enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// Records what is written, in order, with the bytes.
struct Log<'a>(Overlay<'a>, Mutex<Vec<Event>>);

impl Layer for Log<'_> {
    fn below(&self) -> &dyn BlockDevice {
        &self.0
    }
    fn write_through(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.1.lock().unwrap().push(Event::Write(offset, bytes.to_vec()));
        self.0.write_at(offset, bytes)
    }
    fn flush_through(&self) -> io::Result<()> {
        self.1.lock().unwrap().push(Event::Flush);
        Ok(())
    }
}

/// The content of a disk after a power cut: `lasting`, and of each write since the last flush nothing, all, or its sectors as
/// `torn` says.
fn cut<'a>(lasting: &'a dyn BlockDevice, pending: &[(u64, Vec<u8>)], torn: Option<u64>) -> Overlay<'a> {
    let disk = Overlay::new(lasting);
    let sector = usize::try_from(lasting.sector().bytes()).unwrap();
    for (index, (offset, bytes)) in pending.iter().enumerate() {
        let Some(seed) = torn else {
            disk.write_at(*offset, bytes).unwrap();
            continue;
        };
        for (number, piece) in bytes.chunks(sector).enumerate() {
            let lot = (seed << 40 ^ (index << 20 ^ number) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if lot >> 63 == 0 {
                disk.write_at(offset + (number * sector) as u64, piece).unwrap();
            }
        }
    }
    disk
}

/// Interrupts the writes that replace a table at every possible point, and each time looks for what is kept.
fn survives_every_cut(plan: &Plan, disk: &dyn BlockDevice, seed: u64) {
    let kept = plan.kept_here().unwrap();
    let before = ends(disk, &kept.partition);
    let log = Log(Overlay::new(disk), Mutex::default());
    erase(plan, &log).unwrap();
    replace_table(plan, &log).unwrap();
    let lasting = Overlay::new(disk);
    let mut pending = Vec::new();
    for event in log.1.into_inner().unwrap() {
        let torn: &[_] = match event {
            Event::Write(offset, bytes) => {
                pending.push((offset, bytes));
                // Many writes end the same way: the edges of new partitions.
                if pending.len() < 4 { &[None, Some(seed), Some(seed + 1)] } else { &[] }
            }
            Event::Flush => &[None, Some(seed)],
        };
        for torn in torn {
            let state = cut(&lasting, &pending, *torn);
            let found = scan(&state, "vda");
            let same = |part: &&FoundPartition| {
                (
                    part.start,
                    part.size,
                    part.entry.map(|entry| entry.uuid),
                    part.signatures.first().and_then(|found| found.label.as_deref()),
                ) == (kept.partition.start, kept.partition.size, Some(kept.uuid), Some("HARV_LH_DEFAULT"))
            };
            assert_eq!(found.partitions.iter().filter(same).count(), 1, "{torn:?}: {found:?}");
            assert!(ends(&state, &kept.partition) == before, "{torn:?}");
        }
        if torn.len() == 2 {
            pending.drain(..).for_each(|(offset, bytes)| lasting.write_at(offset, &bytes).unwrap());
        }
    }
    assert_eq!(scan(&lasting, "vda").partitions.len(), 8);
}

#[test]
fn a_power_cut_at_any_write_leaves_the_data_in_a_whole_table() {
    let bench = again(keeping(), 512);
    survives_every_cut(&bench.plan, &bench.disk, 1);
    // The next run finds a table with one intact copy, whichever that is.
    for damaged in [600, bench.disk.size().get() - 300] {
        bench.disk.file().write_all_at(&[0x99], damaged).unwrap();
        survives_every_cut(&bench.plan, &bench.disk, 2);
        let mut whole = bench.plan.clone();
        (whole.disk_guid, whole.kept) = (GUID, None);
        table::write(&bench.disk, GUID, &bench.plan.partitions).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn wherever_the_data_lies_it_survives_every_power_cut(
        start in 18_747_392_u64..23_000_000,
        size in 4096_u64..8_000_000,
        four_k: bool,
        behind: bool,
        seed in 0_u64..1000,
    ) {
        let sector = if four_k { 4096 } else { 512 };
        let mut target = crate::plan::tests::disk("vda", ByteSize::gib(16));
        target.logical_sector = sector;
        let (unit, end) = (u64::from(sector), target.size.get() - (16 << 10) - u64::from(sector));
        let start = (start * 512).next_multiple_of(unit);
        let size = (size * 512).next_multiple_of(unit).min(end - start);
        let file = tempfile::NamedTempFile::new().unwrap();
        let plain = Bench::with(std::slice::from_ref(&target), trial());
        let disk = TestDisk::other(&plain.plan.disk, file);
        // An old system before it, and perhaps something behind it.
        let part = |number, name, start: u64, size: u64| Partition {
            number,
            name,
            uuid: Uuid::new_v5(&GUID, &[number as u8]),
            start: ByteSize::bytes(start),
            size: ByteSize::bytes(size),
        };
        let mut old = vec![part(1, PartitionName::Esp, 1 << 20, 64 << 20), part(2, PartitionName::Data, start, size)];
        if behind && start + size + (8 << 20) < end {
            old.push(part(3, PartitionName::Config, start + size, 8 << 20));
        }
        table::write(&disk, GUID, &old).unwrap();
        fill(&disk, start, size);
        let bench = continued(disk, keeping());
        survives_every_cut(&bench.plan, &bench.disk, seed);
    }
}
