//! Multipath disks, and udev's records.

use super::*;
use testing::specimens::Specimen;

/// `sda` and `sdb` are paths to one disk, `dm-0`; `sdc` is another disk.
fn machine() -> MachineTree {
    let machine = MachineTree::new("");
    for (name, number, serial) in [("sda", "8:0", "LUN1"), ("sdb", "8:16", "LUN1"), ("sdc", "8:32", "OTHER")]
    {
        machine.disk(name, number, ByteSize::gib(100));
        machine.file(&format!("sys/block/{name}/device/model"), "MSA 2060\n");
        machine.file(&format!("sys/block/{name}/device/vpd_pg80"), &format!("\0\u{1}\0\u{4}{serial}"));
        machine.file(&format!("sys/block/{name}/device/wwid"), &format!("naa.600{serial}\n"));
    }
    machine.disk("dm-0", "254:0", ByteSize::gib(100));
    machine.file("sys/block/dm-0/dm/name", "mpatha\n");
    machine.file("sys/block/dm-0/dm/uuid", "mpath-3600c0ff0\n");
    machine.file("sys/block/dm-0/queue/logical_block_size", "4096\n");
    for path in ["sda", "sdb"] {
        machine.file(&format!("sys/block/{path}/holders/dm-0/dev"), "254:0");
        machine.file(&format!("sys/block/dm-0/slaves/{path}/dev"), "8:0");
    }
    machine.link("dev/disk/by-id/wwn-0x600LUN1", "../../dm-0");
    machine.link("dev/disk/by-path/pci-0-lun-1", "../../sdb");
    machine
}

#[test]
fn the_paths_to_a_disk_are_one_disk() {
    let inventory = scan(&machine());
    let names: Vec<_> = inventory.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(names, ["sdc", "dm-0"]);
    let disk = &inventory.disks[1];
    assert_eq!((disk.path.to_str(), disk.logical_sector), (Some("/dev/mapper/mpatha"), 4096));
    assert_eq!((disk.serial.as_deref(), disk.wwn.as_deref()), (Some("LUN1"), Some("naa.600LUN1")));
    assert!(disk.holders.is_empty(), "{:?}", disk.holders);
    assert!(disk.describe().contains("serial LUN1, 2 paths"), "{}", disk.describe());
    for path in
        ["/dev/mapper/mpatha", "/dev/disk/by-id/wwn-0x600LUN1", "/dev/sda", "/dev/disk/by-path/pci-0-lun-1"]
    {
        assert_eq!(inventory.find(Path::new(path)).map(|disk| disk.name.as_str()), Some("dm-0"), "{path}");
    }
}

#[test]
fn partitions_of_several_paths_are_the_disks_and_their_mounts_make_it_busy() {
    let machine = machine();
    machine.partition("sda", "sda1", "8:1");
    for (name, number, uuid) in
        [("dm-1", "254:1", "part1-mpath-3600c0ff0"), ("dm-2", "254:2", "part2-mpath-3600c0ff0")]
    {
        machine.disk(name, number, ByteSize::gib(1));
        machine.file(&format!("sys/block/{name}/dm/name"), &format!("mpatha-part{}", &number[4..]));
        machine.file(&format!("sys/block/{name}/dm/uuid"), uuid);
        machine.file(&format!("sys/block/dm-0/holders/{name}/dev"), number);
    }
    machine.file("proc/self/mountinfo", "1 0 254:1 / /srv rw - ext4 /dev/mapper/mpatha-part1 rw\n");
    let inventory = scan(&machine);
    let disk = inventory.find(Path::new("/dev/mapper/mpatha")).unwrap();
    let [part] = &disk.partitions[..] else { panic!("{:?}", disk.partitions) };
    assert_eq!((part.path.to_str(), part.start), (Some("/dev/mapper/mpatha-part1"), ByteSize::mib(1)));
    let told: Vec<_> = disk.holders.iter().map(ToString::to_string).collect();
    // The start of the second is unknown, so that it is not usable as a partition.
    assert_eq!(told, ["/dev/dm-0 has the partition mpatha-part2", "/dev/dm-1 is mounted at /srv"]);
}

#[test]
fn the_partitions_that_udev_has_removed_from_the_paths_are_known_by_the_table_on_the_map() {
    let machine = machine();
    let disk = Specimen::new(ByteSize::gib(100).get(), 4096);
    disk.gpt(&[(1 << 20, 1 << 20, "esp"), (1 << 21, 1 << 30, "root-a")]);
    machine.node("dm-0", disk);
    for (name, number) in [("dm-1", 1), ("dm-2", 2), ("dm-3", 3)] {
        machine.disk(name, &format!("254:{number}"), ByteSize::gib(1));
        machine.file(&format!("sys/block/{name}/dm/name"), &format!("mpatha-part{number}"));
        machine.file(&format!("sys/block/{name}/dm/uuid"), &format!("part{number}-mpath-3600c0ff0"));
        machine.file(&format!("sys/block/dm-0/holders/{name}/dev"), &format!("254:{number}"));
    }
    machine.link("dev/disk/by-id/dm-uuid-mpath-3600c0ff0", "../../dm-0");
    let inventory = scan(&machine);
    let disk = inventory.find(Path::new("/dev/mapper/mpatha")).unwrap();
    let found: Vec<_> = disk
        .partitions
        .iter()
        .map(|part| (part.path.to_str().unwrap(), part.name.as_str(), part.label.as_deref(), part.start))
        .collect();
    assert_eq!(
        found,
        [
            ("/dev/mapper/mpatha-part1", "dm-1", Some("esp"), ByteSize::mib(1)),
            ("/dev/mapper/mpatha-part2", "dm-2", Some("root-a"), ByteSize::mib(2)),
        ]
    );
    assert!(disk.partitions.iter().all(|part| part.entry.is_some()));
    assert_eq!(disk.multipath_id(), Some("3600c0ff0"));
    let told: Vec<_> = disk.holders.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["/dev/dm-0 has the partition mpatha-part3"]);
}

#[test]
fn a_boot_medium_behind_several_paths_is_one() {
    let machine = machine();
    machine
        .file("proc/self/mountinfo", "1 0 254:0 / /run/initramfs/live ro - iso9660 /dev/mapper/mpatha ro\n");
    assert!(scan(&machine).disks[1].boot_medium);
}

#[test]
fn udev_is_asked_for_what_sysfs_does_not_tell() {
    let machine = MachineTree::new("");
    machine.disk("sda", "8:0", ByteSize::gib(8));
    machine.disk("sdb", "8:16", ByteSize::gib(8));
    let record = "S:disk/by-id/ata-x\nE:ID_MODEL=Old_Disk\nE:ID_MODEL_ENC=Old\\x20Disk\\x20\\x20\n\
                  E:ID_SERIAL_SHORT=S-1\nE:ID_SERIAL=Old_Disk_S-1\nE:ID_WWN=0x5000c500\n";
    machine.file("udev/b8:0", record);
    machine.file("udev/b8:16", record);
    machine.file("sys/block/sdb/device/model", "New disk\n");
    machine.file("sys/block/sdb/device/vpd_pg80", "\0\u{1}\0\u{4}    ");
    machine.file("sys/block/sdb/device/wwid", "naa.1\n");
    let facts = |disk: &Disk| [&disk.model, &disk.serial, &disk.wwn].map(|fact| fact.clone().unwrap());
    let disks = scan(&machine).disks;
    assert_eq!(facts(&disks[0]), ["Old Disk", "S-1", "0x5000c500"]);
    assert_eq!(facts(&disks[1]), ["New disk", "S-1", "naa.1"]);
}

#[test]
fn the_length_in_front_of_a_serial_number_is_no_part_of_it() {
    let machine = MachineTree::new("");
    machine.disk("sda", "8:0", ByteSize::gib(8));
    let number = format!("{:>36}", "beaf11");
    machine.file("sys/block/sda/device/vpd_pg80", &["\0\u{1}\0$", &number].concat());
    assert_eq!(scan(&machine).disks[0].serial.as_deref(), Some("beaf11"));
}

#[test]
fn the_namespaces_of_a_controller_are_told_apart() {
    let machine = MachineTree::new("");
    for (name, number, namespace) in [("nvme0n1", "259:0", "1\n"), ("nvme0n2", "259:1", "2\n")] {
        machine.disk(name, number, ByteSize::gib(8));
        machine.file(&format!("sys/block/{name}/nsid"), namespace);
    }
    let disks = scan(&machine).disks;
    assert_eq!((disks[0].namespace, disks[1].namespace), (Some(1), Some(2)));
    assert!(!disks[0].identify().contains("namespace"));
    assert!(disks[1].identify().ends_with(", namespace 2"), "{}", disks[1].describe());
}
