//! Whole runs on a disk that is a sparse file, with mounts that are directories.

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;

use super::boot::fat_volume::{self, FatPlace};
use super::disk::table;
use super::*;
use crate::plan::tests::{GUID, contents, disk, trial};
use crate::plan::{PartitionName, Plan, SlotGeometry};
use base::command::{Invocation, Runner};
use base::failure::{Class, class_of};
use base::progress::StepState;
use base::size::ByteSize;
use doubles::{Act, Bench, TestDisk};
use machine::write_latency::WriteLatency;
use medium::payload_sources::PayloadPlace;
use model::release::Purpose;
use testing::release::expanded_image;
use testing::runner::ScriptedRunner;

mod continued;
mod crash;
mod disk_replacement;
mod disks;
pub(crate) mod doubles;
mod faults;
mod firmware;
mod keep;
mod mirror;
mod slot_repair;
mod slot_update;

#[test]
fn nothing_is_bootable_before_the_last_write() {
    let bench = Bench::new();
    bench.run().unwrap();
    let acts = bench.acts();
    // First the old boot sector is erased, and flushed, before anything else happens.
    assert!(matches!(acts[0], Act::Write { offset: 0, length: 512, .. }), "{:?}", acts[0]);
    assert_eq!(acts[1], Act::Flush);
    let writes: Vec<_> = acts.iter().filter(|act| matches!(act, Act::Write { .. })).collect();
    let (last, before) = writes.split_last().unwrap();
    let esp = bench.partition(PartitionName::Esp);
    assert_eq!(**last, Act::Write { offset: esp, length: 512, esp_empty: false });
    // Once the old loader's place is erased, its sector stays empty.
    let erased = before.iter().position(|act| matches!(act, Act::Write { offset, .. } if *offset == esp));
    let after = &before[erased.unwrap()..];
    assert!(after.iter().all(|act| matches!(act, Act::Write { esp_empty: true, .. })));
    // The commit stands between two barriers.
    let place = acts.iter().position(|act| act == *last).unwrap();
    assert_eq!((acts[place - 1], acts[place + 1]), (Act::Flush, Act::Flush));
    assert!(bench.disk.committed());
}

#[test]
fn the_disk_holds_what_the_plan_says() {
    let bench = Bench::new();
    bench.run().unwrap();
    for (payload, bytes) in contents() {
        if payload.purpose == model::release::Purpose::Rootfs {
            let expanded = expanded_image();
            assert!(expanded.len() > bytes.len());
            assert!(bench.disk.bytes(bench.partition(PartitionName::RootA), expanded.len()) == *expanded);
        }
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let store = bench.host.path("persistent").join("lib/containerd");
    assert_eq!(mode(&store), 0o711);
    let blobs = store.join("io.containerd.content.v1.content/blobs/sha256");
    let names: Vec<_> = std::fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(names.len(), 2);
    for entry in names {
        let bytes = std::fs::read(entry.path()).unwrap();
        assert_eq!(entry.file_name().to_str().unwrap(), base::digest::Digest::of(&bytes).to_string());
        assert_eq!(mode(&entry.path()), 0o444);
    }
    assert!(store.join("io.containerd.metadata.v1.bolt/meta.db").exists());
    let document = bench.host.path("config").join(DOCUMENT);
    assert_eq!(std::fs::read_to_string(&document).unwrap(), "token: hush-token\n");
    assert_eq!(mode(&document), 0o600);
    let id = std::fs::read_to_string(bench.host.path("config").join("machine-id")).unwrap();
    assert!(id.len() == 33 && id.trim().chars().all(|c| c.is_ascii_hexdigit()));
    let commands = bench.runner.commands();
    let uuid = bench.plan.partition(PartitionName::Data).unwrap().uuid.to_string();
    assert!(commands[2].contains("-L HARV_LH_DEFAULT") && commands[2].contains(&uuid), "{commands:?}");
}

#[test]
fn the_log_on_the_node_tells_every_step_and_no_secret() {
    let bench = Bench::new();
    bench.run().unwrap();
    let log = bench.host.path("persistent").join("log/nqrust");
    for name in ["install.log", "install-events.jsonl"] {
        let text = std::fs::read_to_string(log.join(name)).unwrap();
        assert!(!text.contains("hush-token"), "{name}");
        assert!(text.contains("Making the disk bootable"), "{name}");
        assert_eq!(text.contains("passed  cpu  a test"), name == "install.log", "{name}");
    }
    let events = bench.recorder.0.lock().unwrap();
    let done: Vec<_> =
        events.iter().filter(|e| e.state == StepState::Done).map(|e| e.step.as_str()).collect();
    let mut expected: Vec<_> = bench.plan.steps.iter().map(crate::plan::Step::id).collect();
    for (place, told) in
        [(5, "read-back"), (6, "boot-volume"), (8, "read-back"), (9, "boot-volume"), (12, "images-read-back")]
    {
        expected.insert(place, told);
    }
    assert_eq!(done, expected);
}

#[test]
fn the_partition_table_satisfies_other_programs_on_both_sector_sizes() {
    for sector in [512, 4096] {
        let bench = Bench::with_sector(sector);
        let Plan { disk_guid, partitions, .. } = &bench.plan;
        table::write(&bench.disk, *disk_guid, partitions).unwrap();
        table::verify(&bench.disk, *disk_guid, partitions).unwrap();
        let path = bench.disk.file.path().to_str().unwrap();
        // Neither program can be given another sector size for a file.
        if sector == 512 {
            let run = |invocation: Invocation| {
                let output = base::command::SystemRunner.run(&invocation).unwrap();
                String::from_utf8(output).unwrap()
            };
            let text = run(Invocation::new("sgdisk").args(["-v", path]));
            assert!(text.contains("No problems found"), "{text}");
            run(Invocation::new("sfdisk").args(["--verify", path]));
            let text = run(Invocation::new("sfdisk").args(["--json", path]));
            let table: serde_json::Value = serde_json::from_str(&text).unwrap();
            let third = &table["partitiontable"]["partitions"][3];
            assert_eq!(third["name"], "root-a");
            assert_eq!(third["type"], "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709");
        }
    }
}

#[test]
fn a_disk_of_4096_byte_sectors_is_written_in_whole_sectors() {
    let bench = Bench::with_sector(4096);
    bench.run().unwrap();
    let esp = bench.partition(PartitionName::Esp);
    let last = bench.acts().into_iter().rev().find(|act| *act != Act::Flush).unwrap();
    assert_eq!(last, Act::Write { offset: esp, length: 4096, esp_empty: false });
}

#[test]
fn a_bootable_disk_has_an_active_entry_and_other_programs_find_nothing_wrong_with_its_table() {
    let bench = Bench::new();
    bench.run().unwrap();
    let Plan { disk_guid, partitions, .. } = &bench.plan;
    table::verify(&bench.disk, *disk_guid, partitions).unwrap();
    assert_eq!([446, 462, 478, 494].map(|entry| bench.disk.bytes(entry, 1)[0]), [0, 0x80, 0, 0]);
    let path = bench.disk.file.path().to_str().unwrap();
    let run = |program: &str, option: &str| {
        let output = base::command::SystemRunner.run(&Invocation::new(program).args([option, path])).unwrap();
        String::from_utf8(output).unwrap()
    };
    let text = run("sgdisk", "-v");
    assert!(text.contains("No problems found"), "{text}");
    run("sfdisk", "--verify");
    let text = run("sfdisk", "--json");
    assert!(text.contains(r#""label": "gpt""#) || text.contains(r#""label":"gpt""#), "{text}");
    let parts = partitions.len();
    assert_eq!(text.matches("\"node\":").count(), parts, "{text}");
}

#[test]
fn a_damaged_payload_stops_the_install_before_the_first_write() {
    let other = |path: &str| {
        ["witness", "default.db", "witness.db", "worker.db"].iter().any(|end| path.ends_with(end))
    };
    for (payload, _) in contents().iter().filter(|(payload, _)| !other(&payload.path)) {
        let mut bench = Bench::new();
        bench.medium.damaged = Some(&payload.path);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::Verification, "{text}");
        assert!(text.contains(&payload.path) && text.contains("Nothing was written to /dev/vda"), "{text}");
        assert!(bench.acts().is_empty());
    }
}

#[test]
fn a_medium_whose_boot_parts_were_changed_stops_the_install_before_the_first_write() {
    let release = testing::iso::release();
    let image = testing::iso::image(&release);
    let medium = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = image.clone();
        change(&mut image);
        let mut bench = Bench::new();
        *bench.plan.release = release.clone().into();
        bench.medium.image = Some((release.to_bytes(), image));
        bench
    };
    medium(&|_| ()).run().unwrap();
    let shell = testing::iso::find(&image, "rd.shell=0") + "rd.shell=".len();
    for (name, at) in [("boot/grub/grub.cfg", shell), ("boot sector", 100), ("volume descriptors", 33_000)] {
        let bench = medium(&|image| image[at] ^= 1);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::Verification, "{text}");
        assert!(text.contains(name) && text.contains("Nothing was written to /dev/vda"), "{text}");
        assert!(bench.acts().is_empty());
    }
}

#[test]
fn a_payload_that_goes_bad_after_the_check_is_found_when_it_is_written() {
    for path in ["live/vmlinuz", "live/rootfs.squashfs", "images/blobs/sha256/two", "boot/core.img"] {
        let mut bench = Bench::new();
        (bench.medium.damaged, bench.medium.good_openings) = (Some(path), 1);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::Verification, "{text}");
        assert!(text.contains(path) && text.contains("is not bootable now"), "{text}");
    }
}

#[test]
fn what_a_server_damages_is_fetched_again() {
    for path in ["live/rootfs.squashfs", "images/blobs/sha256/two"] {
        for (damaged, installs) in [(1, true), (2, true), (3, false)] {
            let mut bench = Bench::new();
            (bench.medium.damaged, bench.medium.bad_openings) = (Some(path), damaged);
            bench.medium.place = PayloadPlace::Network;
            match bench.run() {
                Ok(()) => assert!(installs && bench.disk.committed()),
                Err(error) => {
                    assert!(!installs && !bench.disk.committed(), "{path} {damaged}: {error:#}");
                    assert_eq!(class_of(&error), Class::Verification);
                }
            }
        }
    }
}

#[test]
fn a_disk_that_gives_back_other_bytes_is_found_with_the_place() {
    let mut bench = Bench::new();
    bench.disk.rotten = Some(bench.partition(PartitionName::RootA) + 1_000_001);
    let (class, text) = bench.fail();
    assert_eq!(class, Class::DiskIo);
    assert!(text.contains("from its byte 999424 on, at byte "), "{text}");
}

/// Where on the disk of an install a payload begins, of the first MiB from `start` on.
fn place_of(bench: &Bench, purpose: Purpose, start: u64) -> u64 {
    let (_, bytes) = contents().iter().find(|(payload, _)| payload.purpose == purpose).unwrap();
    let there = bench.disk.bytes(start, 8 << 20);
    start + there.windows(64).position(|here| *here == bytes[..64]).unwrap() as u64
}

/// Bytes of each kind of file that GRUB or the firmware reads, and of the hash trees.
fn boot_places(bench: &Bench) -> Vec<u64> {
    let slots = [PartitionName::RootA, PartitionName::Recovery]
        .map(|name| SlotGeometry::of(bench.plan.partition(name).unwrap()));
    let image = expanded_image().len() as u64;
    let trees = slots.map(|slot| slot.tree(image) + 40);
    let kernels = slots.map(|slot| place_of(bench, Purpose::Kernel, slot.boot.get()) + 9);
    let loader = place_of(bench, Purpose::GrubEfi, bench.partition(PartitionName::Esp)) + 9;
    [trees, kernels].concat().into_iter().chain([loader]).collect()
}

#[test]
fn rot_in_table_boot_files_and_boot_code_is_found_before_the_commit() {
    let bench = Bench::new();
    bench.run().unwrap();
    let end = bench.plan.disk.size.get();
    let core = bench.partition(PartitionName::Bios) + 700;
    // An entry of the table, its second header, core, loader, files.
    for rotten in [1024 + 40, end - 500, core, 100].into_iter().chain(boot_places(&bench)) {
        let mut bench = Bench::new();
        bench.disk.rotten = Some(rotten);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::DiskIo, "{rotten}: {text}");
    }
}

#[test]
fn a_disk_shorter_than_it_said_is_disk_io() {
    let mut bench = Bench::new();
    bench.disk.target.size = ByteSize::gib(15);
    assert_eq!(bench.fail().0, Class::DiskIo);
}

#[test]
fn a_failed_mkfs_is_disk_io() {
    let mut bench = Bench::new();
    bench.runner = ScriptedRunner::failing("exit status: 1");
    let (class, text) = bench.fail();
    assert_eq!(class, Class::DiskIo);
    assert!(text.contains("making a file system on /dev/config (config)"), "{text}");
}

#[test]
fn a_stop_is_heeded_in_the_middle_of_a_step() {
    for path in ["live/vmlinuz", "live/rootfs.squashfs", "images/blobs/sha256/one"] {
        let mut bench = Bench::new();
        bench.medium.stop_at = Some((path, bench.stop));
        let (class, text) = bench.fail();
        assert_eq!(class, Class::Cancelled, "{text}");
        assert!(text.contains("is not bootable now"), "{text}");
    }
    let bench = Bench::new();
    bench.stop.store(true, Ordering::Relaxed);
    let (class, text) = bench.fail();
    assert_eq!(class.exit_code(), 130);
    assert!(text.contains("Nothing was written"), "{text}");
}

/// A loop device over the bench's file, detached at the end.
struct Loop(String);

impl Loop {
    fn new(bench: &Bench, sector: u32) -> Self {
        let attach = Invocation::new("losetup").args(["--find", "--show", "--direct-io=on", "--sector-size"]);
        let attach = attach.arg(sector.to_string()).arg(bench.disk.file.path());
        let output = base::command::SystemRunner.run(&attach).unwrap();
        Self(String::from_utf8(output).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = base::command::SystemRunner.run(&Invocation::new("losetup").args(["--detach", &self.0]));
    }
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_real_block_device_takes_direct_writes_and_other_programs_accept_the_result() {
    for sector in [512, 4096] {
        let mut bench = Bench::with_sector(sector);
        let device = Loop::new(&bench, sector);
        bench.plan.disk.path = device.0.clone().into();
        let disk = OpenDisk::open(&bench.plan.disk).unwrap();
        assert!(OpenDisk::open(&bench.plan.disk).is_err(), "a second installer gets in");
        bench.run_on(&disk).unwrap();
        drop(disk);
        assert!(bench.disk.committed());
        let check = Invocation::new("sgdisk").args(["-v", &device.0]);
        let text = base::command::SystemRunner.run(&check).unwrap();
        assert!(String::from_utf8_lossy(&text).contains("No problems found"));
        drop(device);
        // The volume alone, as a file: the programs cannot take an offset.
        let esp = bench.plan.partition(PartitionName::Esp).unwrap();
        let volume = tempfile::NamedTempFile::new().unwrap();
        let bytes = bench.disk.bytes(esp.start.get(), usize::try_from(esp.size.get()).unwrap());
        volume.as_file().write_all_at(&bytes, 0).unwrap();
        let check = Invocation::new("sh").args(["-c", "fsck.vfat -n -v \"$0\" >&2"]).arg(volume.path());
        base::command::SystemRunner.run(&check).unwrap();
    }
}

#[test]
fn a_slow_disk_of_etcd_is_told_and_refused_only_where_the_document_says_so() {
    let slow = WriteLatency { writes: 2000, median: 4000, p99: 38_000, slowest: 90_000 };
    let run = |limit: Option<u32>, latency: WriteLatency| {
        let mut config = trial();
        config.install.etcd_write_latency_limit = limit;
        let bench = Bench::with(&[disk("vda", ByteSize::gib(16))], config);
        *bench.host.latency.lock().unwrap() = Some(latency);
        bench
    };
    let log = |bench: &Bench| {
        std::fs::read_to_string(bench.host.path("persistent").join("log/nqrust/install.log")).unwrap()
    };
    for limit in [None, Some(38)] {
        let bench = run(limit, slow);
        bench.run().unwrap();
        let told =
            "warning: the disk is slow for etcd, which needs 10 ms: 99 of 100 flushed writes within 38.0 ms";
        assert!(log(&bench).contains(told), "{}", log(&bench));
        let kept = bench.host.path("persistent").join(machine::write_latency::RECORD_ON_PARTITION);
        let kept: WriteLatency = serde_json::from_slice(&std::fs::read(kept).unwrap()).unwrap();
        assert_eq!(kept, slow);
    }
    let (class, text) = run(Some(37), slow).fail();
    assert_eq!(class, Class::Hardware);
    assert!(text.contains("the disk of etcd is too slow") && text.contains("limit is 37 ms"), "{text}");
    assert!(text.contains("continues where this one ended"), "{text}");
    let good = WriteLatency { p99: 900, ..slow };
    let bench = run(Some(1), good);
    bench.run().unwrap();
    assert!(
        log(&bench).contains("The disk of etcd: 99 of 100 flushed writes within 0.9 ms"),
        "{}",
        log(&bench)
    );
    assert!(!log(&bench).contains("slow for etcd"));
}
