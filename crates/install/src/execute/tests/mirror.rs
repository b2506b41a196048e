//! Runs that install on two disks.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::*;
use crate::plan::{Partition, Step};
use base::failure::{class_of, render};

/// Does to the disks what `mdadm --create` does.
fn write_superblocks(words: &[&str], partitions: &[Partition], disks: &[File]) {
    let value = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)).unwrap();
    let digits = value("--uuid=").replace(':', "");
    let uuid: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).unwrap()).collect();
    let sectors = value("--size=").parse::<u64>().unwrap() * 2;
    let name = value("--name=");
    let partition = partitions.iter().find(|partition| partition.name.as_str() == name).unwrap();
    let mut superblock = [0; 4096];
    superblock[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    superblock[16..32].copy_from_slice(&uuid);
    superblock[72] = 1;
    superblock[80..88].copy_from_slice(&sectors.to_le_bytes());
    superblock[92] = 2;
    for disk in disks {
        disk.write_all_at(&superblock, partition.end().get() - 8192).unwrap();
    }
}

impl Bench {
    /// The system on `vda` and `vdb`.
    pub(super) fn mirrored(sector: u32) -> Self {
        let mut disks = [disk("vda", ByteSize::gib(16)), disk("vdb", ByteSize::gib(20))];
        disks.iter_mut().for_each(|disk| disk.logical_sector = sector);
        let mut config = trial();
        config.install.mirror = "/dev/vdb".parse().ok();
        let mut bench = Self::with(&disks, config);
        let second = bench.plan.mirror.as_ref().unwrap().disk.clone();
        let esp = bench.partition(PartitionName::Esp);
        let disk = TestDisk::other(&second, tempfile::NamedTempFile::new().unwrap());
        disk.file().write_all_at(&[0xeb; 4096], 0).unwrap();
        disk.file().write_all_at(&[0xeb; 512], esp).unwrap();
        bench.others.insert("vdb".into(), TestDisk { esp, ..disk });
        let partitions = bench.plan.partitions.clone();
        let disks = [&bench.disk, bench.second()].map(|disk| disk.file().try_clone().unwrap());
        bench.runner = bench.runner.reply("mdadm --create", move |invocation| {
            let words: Vec<_> = invocation.args.iter().map(|word| word.to_str().unwrap()).collect();
            write_superblocks(&words, &partitions, &disks);
            Ok(Vec::new())
        });
        bench
    }

    fn second(&self) -> &TestDisk {
        &self.others["vdb"]
    }

    /// Runs to a failure; neither disk may boot after it, and no array may run.
    fn fail_mirrored(&self) -> (Class, String) {
        let error = self.run().unwrap_err();
        assert!(!self.disk.committed() && !self.second().committed(), "a disk boots after a failure");
        self.check_stopped();
        (class_of(&error), render(&error))
    }

    fn check_stopped(&self) {
        let commands = self.runner.commands();
        let count = |verb: &str| commands.iter().filter(|command| command.starts_with(verb)).count();
        assert_eq!(count("mdadm --stop"), count("mdadm --create"), "{commands:?}");
        assert_eq!(self.host.mounted.load(Ordering::Relaxed), 0, "a mount was left behind");
    }
}

fn place_of_superblock(bench: &Bench, name: PartitionName) -> u64 {
    bench.plan.partition(name).unwrap().end().get() - 8192
}

#[test]
fn both_disks_are_complete_after_a_run() {
    for sector in [512, 4096] {
        let bench = Bench::mirrored(sector);
        bench.run().unwrap();
        bench.check_stopped();
        assert!(bench.disk.committed() && bench.second().committed());
        let mirror = bench.plan.mirror.as_ref().unwrap();
        table::verify(&bench.disk, bench.plan.disk_guid, &bench.plan.partitions).unwrap();
        table::verify(bench.second(), mirror.disk_guid, &mirror.partitions).unwrap();
        for step in &bench.plan.steps {
            match step {
                Step::Esp(content) => {
                    for disk in [&bench.disk, bench.second()] {
                        let place = FatPlace::esp(bench.plan.partition(PartitionName::Esp).unwrap(), disk);
                        fat_volume::verify(disk, place, &content.files).unwrap();
                    }
                }
                Step::Slot { partition, boot, .. } => {
                    let geometry = crate::plan::SlotGeometry::of(bench.plan.partition(*partition).unwrap());
                    for disk in [&bench.disk, bench.second()] {
                        fat_volume::verify(disk, FatPlace::boot_volume(geometry), &boot.files).unwrap();
                    }
                    let image = expanded_image();
                    for disk in [&bench.disk, bench.second()] {
                        assert!(disk.bytes(bench.partition(*partition), image.len()) == *image);
                    }
                }
                _ => {}
            }
        }
        // BIOS starts from either, if it can start from such a disk at all.
        let core = |disk: &TestDisk| disk.bytes(bench.partition(PartitionName::Bios), 4096);
        assert_eq!(core(&bench.disk), core(bench.second()));
        assert_eq!(core(&bench.disk) == [0; 4096], sector == 4096);
        let active = |disk: &TestDisk| [446, 462, 478, 494].map(|entry| disk.bytes(entry, 1)[0] == 0x80);
        assert_eq!(active(&bench.disk), active(bench.second()));
        assert_eq!(active(&bench.disk), [false, sector == 512, false, false]);
    }
}

#[test]
fn file_systems_are_made_on_arrays_of_both_disks() {
    let bench = Bench::mirrored(512);
    bench.run().unwrap();
    let commands = bench.runner.commands();
    let place = |beginning: &str| commands.iter().position(|command| command.starts_with(beginning));
    let last = commands.iter().rposition(|command| command.starts_with("mdadm --create")).unwrap();
    assert!(last < place("mkfs.ext4").unwrap(), "{commands:?}");
    let array = bench.plan.mirror.as_ref().unwrap().arrays[0];
    assert_eq!(
        commands[place("mdadm --create").unwrap()],
        format!(
            "mdadm --create /dev/config --run --assume-clean --level=1 --raid-devices=2 --metadata=1.0 \
             --bitmap=internal --homehost=any --name=config --uuid={} --size=64512 /dev/config /dev/config",
            array.id()
        )
    );
    // Each disk returned the container images and then the node document; in the end both may.
    let once = [vec![Some(0); 6], vec![Some(1); 6], vec![None; 6]].concat();
    assert_eq!(*bench.host.read_from.lock().unwrap(), once.repeat(2));
}

#[test]
fn nothing_is_bootable_on_either_disk_before_its_commit() {
    let bench = Bench::mirrored(512);
    bench.run().unwrap();
    let esp = bench.partition(PartitionName::Esp);
    for disk in [&bench.disk, bench.second()] {
        let acts = disk.acts.lock().unwrap().clone();
        assert!(matches!(acts[0], Act::Write { offset: 0, .. }), "{:?}", acts[0]);
        assert_eq!(acts[1], Act::Flush);
        let writes: Vec<_> = acts.iter().filter(|act| matches!(act, Act::Write { .. })).collect();
        let (last, before) = writes.split_last().unwrap();
        assert_eq!(**last, Act::Write { offset: esp, length: 512, esp_empty: false });
        let erased = before.iter().position(|act| matches!(act, Act::Write { offset, .. } if *offset == esp));
        let after = &before[erased.unwrap()..];
        assert!(after.iter().all(|act| matches!(act, Act::Write { esp_empty: true, .. })));
        let place = acts.iter().position(|act| act == *last).unwrap();
        assert_eq!((acts[place - 1], acts[place + 1]), (Act::Flush, Act::Flush));
    }
}

#[test]
fn a_failed_write_at_any_place_of_either_disk_is_disk_io_and_no_commit_of_that_disk() {
    let whole = Bench::mirrored(512);
    whole.run().unwrap();
    let count = |disk: &TestDisk| disk.writes.load(Ordering::Relaxed);
    for (second, count) in [(false, count(&whole.disk)), (true, count(whole.second()))] {
        assert!(count > 20, "{count}");
        for number in (0..count).step_by(count / 10).chain([count - 1]) {
            let mut bench = Bench::mirrored(512);
            let disk = if second { bench.others.get_mut("vdb").unwrap() } else { &mut bench.disk };
            disk.fail_write = Some(number);
            let error = bench.run().unwrap_err();
            let (class, text) = (class_of(&error), render(&error));
            assert_eq!(class, Class::DiskIo, "write {number} of {count}: {text}");
            assert!(!bench.second().committed() && (!bench.disk.committed() || second), "{number}: {text}");
            // Only a failure of the last write leaves the other disk bootable, and the message says so.
            assert_eq!(bench.disk.committed(), second && number == count - 1, "{number}: {text}");
            assert_eq!(
                bench.disk.committed(),
                text.contains("The node starts from /dev/vda now, and from no other disk"),
                "{text}"
            );
            bench.check_stopped();
        }
    }
}

#[test]
fn rot_on_the_second_disk_is_found_before_the_first_commit() {
    let bench = Bench::mirrored(512);
    let mirror = bench.plan.mirror.as_ref().unwrap();
    let end = mirror.disk.size.get();
    let [bios, image] = [PartitionName::Bios, PartitionName::RootA].map(|name| bench.partition(name));
    let superblock = place_of_superblock(&bench, PartitionName::Persistent);
    bench.run().unwrap();
    let places = [1024 + 40, end - 500, bios + 700, image + 1_000_001, superblock + 20];
    for rotten in places.into_iter().chain(boot_places(&bench)) {
        let mut bench = Bench::mirrored(512);
        bench.others.get_mut("vdb").unwrap().rotten = Some(rotten);
        let (class, text) = bench.fail_mirrored();
        assert!(class == Class::DiskIo && text.contains("/dev/vdb"), "{rotten}: {text}");
        assert!(text.contains("/dev/vda, /dev/vdb are not bootable now"), "{text}");
    }
}

#[test]
fn an_array_that_cannot_be_made_is_named() {
    let bench = Bench::mirrored(512);
    bench.runner.set_failure("--name=root-b", "mdadm ended with exit status: 1");
    let error = bench.run().unwrap_err();
    let text = render(&error);
    assert!(class_of(&error) == Class::DiskIo && text.contains("into an array (root-b)"), "{text}");
    assert!(!bench.disk.committed() && !bench.second().committed());
    let commands = bench.runner.commands();
    let stopped = commands.iter().filter(|command| command.starts_with("mdadm --stop")).count();
    assert_eq!(stopped, 2, "those that were made before it: {commands:?}");
}

#[test]
fn without_mdadm_or_without_the_second_disk_nothing_is_written() {
    let mut bench = Bench::mirrored(512);
    bench.runner = ScriptedRunner::failing("exit status: 1");
    let (_, text) = bench.fail_mirrored();
    assert!(text.contains("looking for what install.mirror needs"), "{text}");
    assert!(bench.acts().is_empty() && bench.second().acts.lock().unwrap().is_empty());
    let mut bench = Bench::mirrored(512);
    bench.others.clear();
    let error = bench.run_with(&bench.disk, &bench.host, &bench.runner).unwrap_err();
    assert!(render(&error).contains("no vdb") && bench.acts().is_empty());
}
