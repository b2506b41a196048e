//! Runs that write on more than one disk.

use super::*;
use crate::plan::tests::found;
use machine::inventory::{Signature, SignatureKind};

/// The system on `vda`, data on `vdb`, and `vdc` to be wiped.
fn bench() -> Bench {
    let mut disks = ["vda", "vdb", "vdc"].map(|name| disk(name, ByteSize::gib(16)));
    let mut short = found("vdc", 2, None, None);
    (short.start, short.size) = (ByteSize::gib(2), ByteSize::bytes(1024));
    let mut beyond = found("vdc", 3, None, None);
    (beyond.start, beyond.size) = (ByteSize::gib(16), ByteSize::gib(1));
    disks[2].partitions = vec![found("vdc", 1, Some("home"), None), short, beyond];
    // Signatures in the middle of the disk, and 1 MiB behind the start of a partition.
    let mark = |kind, offset| Signature { kind, label: None, uuid: None, offset };
    disks[2].signatures = vec![mark(SignatureKind::Gpt, 512), mark(SignatureKind::MdMember, (5 << 30) + 512)];
    disks[2].partitions[0].signatures = vec![mark(SignatureKind::VmfsVolume, 1 << 20)];
    let mut config = trial();
    config.install.data_disk = "/dev/vdb".parse().ok();
    config.install.wipe_disks_list = vec!["/dev/vdc".parse().unwrap(), "/dev/vdz".parse().unwrap()];
    let bench = Bench::with(&disks, config);
    for other in bench.others.values() {
        for (offset, length) in OLD {
            other.file().write_all_at(&vec![0xeb; length], offset).unwrap();
        }
    }
    bench
}

const MIB: usize = 1 << 20;

/// Positions with old content: the table, a partition, a short one and its neighbour, a signature, the second table.
const OLD: [(u64, usize); 5] =
    [(0, MIB), (1 << 30, 2 * MIB), (2 << 30, 2048), (5 << 30, 4096), ((16 << 30) - MIB as u64, MIB)];

fn writes(disk: &TestDisk) -> usize {
    disk.writes.load(Ordering::Relaxed)
}

#[test]
fn a_run_makes_the_data_disk_and_wipes_the_listed_one() {
    let bench = bench();
    bench.run().unwrap();
    assert!(bench.disk.committed());
    let data = bench.plan.data_disk.as_ref().unwrap();
    table::verify(&bench.others["vdb"], data.disk_guid, &data.partitions).unwrap();
    let commands = bench.runner.commands();
    let uuid = data.partitions[0].uuid.to_string();
    let made = commands.iter().filter(|command| command.contains("HARV_LH_DEFAULT")).collect::<Vec<_>>();
    assert!(made.len() == 1 && made[0].contains(&uuid) && made[0].ends_with("/dev/data"), "{commands:?}");
    let wiped = &bench.others["vdc"];
    let zero = |offset, length| wiped.bytes(offset, length).iter().all(|byte| *byte == 0);
    assert!(zero(0, MIB) && zero(1 << 30, MIB) && zero((16 << 30) - MIB as u64, MIB));
    // Of the short partition no more than its length, of the long one no more than its start.
    assert!(zero(2 << 30, 1024) && wiped.bytes((2 << 30) + 1024, 1024) == [0xeb; 1024]);
    // The signatures that were found further inside, with the block around them.
    assert!(zero((1 << 30) + MIB as u64, 4096) && zero(5 << 30, 4096));
    assert_eq!(wiped.bytes((1 << 30) + MIB as u64 + 4096, 1), [0xeb]);
    assert_eq!(*bench.host.told.lock().unwrap(), ["vdc", "vda", "vdb"]);
    let events = bench.recorder.0.lock().unwrap();
    let told = |text: &str| events.iter().any(|event| event.message.contains(text));
    assert!(told("there is no disk /dev/vdz") && told("Erasing /dev/vdc: 16 GiB"));
}

#[test]
fn the_primary_table_of_a_wiped_disk_goes_last_and_alone() {
    let bench = bench();
    bench.run().unwrap();
    let acts = bench.others["vdc"].acts.lock().unwrap().clone();
    let offsets: Vec<_> = acts
        .iter()
        .map(|act| match act {
            Act::Write { offset, .. } => Some(*offset),
            Act::Flush => None,
        })
        .collect();
    let last = (16 << 30) - MIB as u64;
    let (end, marks) = ((2 << 30) - MIB as u64, [5 << 30, (1 << 30) + MIB as u64]);
    let offset = |at: u64| Some(at);
    let partitions = [1 << 30, end, 2 << 30].map(offset);
    let expected = [&partitions[..], &marks.map(offset), &[offset(last), None, Some(0), None]].concat();
    assert_eq!(offsets, expected);
}

#[test]
fn a_failed_write_on_the_data_disk_leaves_the_system_disk_unbootable() {
    let whole = bench();
    whole.run().unwrap();
    let count = writes(&whole.others["vdb"]);
    assert!(count > 4, "{count}");
    for number in 0..count {
        let mut bench = bench();
        bench.others.get_mut("vdb").unwrap().fail_write = Some(number);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::DiskIo, "write {number} of {count}: {text}");
        assert!(text.contains("/dev/vdb") && text.contains("/dev/vda is not bootable now"), "{text}");
        let esp = bench.partition(PartitionName::Esp);
        assert!(bench.disk.bytes(esp, 512).iter().all(|byte| *byte == 0), "write {number}");
    }
}

#[test]
fn a_failed_write_on_a_wiped_disk_leaves_the_system_disk_as_it_was() {
    let whole = bench();
    whole.run().unwrap();
    for number in 0..writes(&whole.others["vdc"]) {
        let mut bench = bench();
        bench.others.get_mut("vdc").unwrap().fail_write = Some(number);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::DiskIo, "{text}");
        assert!(text.contains("/dev/vdc may be erased by now; nothing was written to /dev/vda"), "{text}");
        assert!(bench.acts().is_empty() && writes(&bench.others["vdb"]) == 0);
    }
}

#[test]
fn a_disk_that_cannot_be_wiped_is_told_and_passed_over_where_that_is_wanted() {
    let tolerant = |change: fn(&mut Bench)| {
        let mut bench = bench();
        bench.plan.document.install.wipe_failure = model::config::WipeFailure::Warn;
        change(&mut bench);
        bench.run().unwrap();
        assert!(bench.disk.committed());
        let events = bench.recorder.0.lock().unwrap();
        let told = |text: &str| events.iter().any(|event| event.message.contains(text));
        assert!(told("warning: /dev/vdc is not wiped: "));
    };
    tolerant(|bench| drop(bench.others.remove("vdc")));
    let whole = bench();
    whole.run().unwrap();
    assert!(writes(&whole.others["vdc"]) > 1);
    tolerant(|bench| bench.others.get_mut("vdc").unwrap().fail_write = Some(0));
    tolerant(|bench| bench.others.get_mut("vdc").unwrap().fail_write = Some(1));
}

#[test]
fn a_failed_write_on_the_system_disk_is_never_a_commit_with_other_disks_either() {
    let whole = bench();
    whole.run().unwrap();
    let count = writes(&whole.disk);
    for number in [0, 1, count / 2, count - 1] {
        let mut bench = bench();
        bench.disk.fail_write = Some(number);
        assert_eq!(bench.fail().0, Class::DiskIo, "write {number} of {count}");
    }
}

#[test]
fn a_disk_that_cannot_be_opened_costs_nothing() {
    for name in ["vdb", "vdc"] {
        let mut bench = bench();
        bench.others.remove(name);
        let (_, text) = bench.fail();
        assert!(text.contains(&format!("no {name}")), "{text}");
        assert!(bench.acts().is_empty() && bench.others.values().all(|disk| writes(disk) == 0));
    }
}

#[test]
fn a_damaged_payload_stops_the_install_before_other_disks_are_written() {
    let mut bench = bench();
    bench.medium.damaged = Some("live/vmlinuz");
    let (class, text) = bench.fail();
    assert_eq!(class, Class::Verification, "{text}");
    assert!(text.contains("Nothing was written to /dev/vda, /dev/vdb, /dev/vdc."), "{text}");
    assert!(bench.others.values().all(|disk| writes(disk) == 0));
}

#[test]
fn rot_in_the_table_of_the_data_disk_is_found_before_the_commit() {
    for rotten in [1024 + 40, (16 << 30) - 500] {
        let mut bench = bench();
        bench.others.get_mut("vdb").unwrap().rotten = Some(rotten);
        let (class, text) = bench.fail();
        assert!(class == Class::DiskIo && text.contains("/dev/vdb"), "{text}");
    }
}

#[test]
fn the_table_of_the_data_disk_satisfies_other_programs() {
    let bench = bench();
    bench.run().unwrap();
    let path = bench.others["vdb"].file.path().to_str().unwrap();
    let run = |invocation: Invocation| {
        String::from_utf8(base::command::SystemRunner.run(&invocation).unwrap()).unwrap()
    };
    let text = run(Invocation::new("sgdisk").args(["-v", path]));
    assert!(text.contains("No problems found"), "{text}");
    let text = run(Invocation::new("sfdisk").args(["--json", path]));
    let table: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(table["partitiontable"]["partitions"][0]["name"], "data");
    assert_eq!(table["partitiontable"]["partitions"][0]["type"], "0FC63DAF-8483-4772-8E79-3D69D8477DE4");
}

#[test]
fn wipe_none_spares_content_that_makes_no_partitions() {
    let none = |sector: u32| {
        let mut disks = ["vda", "vdb"].map(|name| disk(name, ByteSize::gib(16)));
        disks[0].logical_sector = sector;
        disks[1].logical_sector = sector;
        let mut config = trial();
        config.install.data_disk = "/dev/vdb".parse().ok();
        config.install.wipe = model::config::Wipe::None;
        Bench::with(&disks, config)
    };
    for sector in [512, 4096] {
        // The boot sector of an old system, with nothing behind it.
        let mut bench = none(sector);
        let (esp, rest) = (bench.partition(PartitionName::Esp), vec![0; 4096]);
        bench.disk.file().write_all_at(&rest[512..], 512).unwrap();
        bench.disk.file().write_all_at(&[0x55, 0xaa], 510).unwrap();
        bench.disk.file().write_all_at(&rest, esp).unwrap();
        bench.run().unwrap();
        // The remains of an empty table at either end do not count either.
        bench = none(sector);
        bench.disk.file().write_all_at(&rest, 0).unwrap();
        table::write(&bench.disk, GUID, &[]).unwrap();
        bench.run().unwrap();
        for (name, place) in
            [("vda", 4), ("vda", 1080), ("vda", (16 << 30) - 5000), ("vdb", 65_600), ("vdb", 1 << 12 | 1024)]
        {
            let bench = none(sector);
            bench.disk.file().write_all_at(&rest, 0).unwrap();
            let disk = bench.others.get(name).unwrap_or(&bench.disk);
            disk.file().write_all_at(&[1], place).unwrap();
            let (class, text) = bench.fail();
            assert_eq!(class, Class::Hardware, "{text}");
            assert!(text.contains(&format!("/dev/{name} is not empty")), "{place}: {text}");
            assert!(bench.acts().is_empty() && writes(&bench.others["vdb"]) == 0);
        }
        // The label of an LVM volume without metadata, where the header of a table would be; and its end.
        for place in [u64::from(sector), (16 << 30) - u64::from(sector)] {
            let bench = none(sector);
            bench.disk.file().write_all_at(&rest, 0).unwrap();
            bench.disk.file().write_all_at(b"LABELONE", place).unwrap();
            let (class, text) = bench.fail();
            assert!(class == Class::Hardware && text.contains("/dev/vda is not empty"), "{place}: {text}");
        }
    }
}
