//! What uses a disk.

use super::*;

/// The clauses about what uses the first disk.
fn told(machine: &MachineTree) -> Vec<String> {
    scan(machine).disks[0].holders.iter().map(ToString::to_string).collect()
}

#[test]
fn mounts_swap_and_arrays_make_a_disk_busy() {
    let machine = MachineTree::new("1 0 8:1 / /data rw - ext4 /dev/sda1 rw\n");
    machine.disk("sda", "8:0", ByteSize::gib(8));
    machine.partition("sda", "sda1", "8:1");
    machine.partition("sda", "sda2", "8:2");
    machine.file("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n");
    machine.file("sys/block/sda/holders/md0/dev", "9:0");
    assert_eq!(
        told(&machine),
        ["/dev/sda is part of the RAID /dev/md0", "/dev/sda1 is mounted at /data", "/dev/sda2 is swap space"]
    );
}

#[test]
fn what_rests_on_other_devices_comes_after_them() {
    // sda1 and sda2 are volumes of one group, sda1 through an encrypted device; on it a file system and swap.
    let machine = MachineTree::new("1 0 254:1 / /srv rw - ext4 /dev/mapper/vg-srv rw\n");
    machine.disk("sda", "8:0", ByteSize::gib(8));
    machine.partition("sda", "sda1", "8:1");
    machine.partition("sda", "sda2", "8:2");
    for (name, number, mapped, uuid) in [
        ("dm-0", "254:0", "secret", "CRYPT-LUKS2-0d6f-secret"),
        ("dm-1", "254:1", "vg-srv", "LVM-abc"),
        ("dm-2", "254:2", "vg-swap", "LVM-def"),
        ("dm-3", "254:3", "snapshot", "other"),
    ] {
        machine.disk(name, number, ByteSize::gib(1));
        machine.file(&format!("sys/block/{name}/dm/name"), mapped);
        machine.file(&format!("sys/block/{name}/dm/uuid"), uuid);
    }
    for place in
        ["sda/sda1/holders/dm-0", "dm-0/holders/dm-1", "sda/sda2/holders/dm-1", "sda/sda2/holders/dm-2"]
    {
        machine.file(&format!("sys/block/{place}/dev"), "0:0");
    }
    machine.file("sys/block/sda/sda2/holders/dm-3/dev", "0:0");
    machine.file("proc/swaps", "Filename Type Size Used Priority\n/dev/dm-2 partition 1 0 -2\n");
    assert_eq!(
        told(&machine),
        [
            "/dev/sda1 is open as the encrypted device secret",
            "/dev/sda2 is part of the LVM volume vg-srv",
            "/dev/sda2 is part of the LVM volume vg-swap",
            "/dev/sda2 is part of /dev/dm-3 (snapshot)",
            "/dev/dm-0 is part of the LVM volume vg-srv",
            "/dev/dm-2 is swap space",
            "/dev/dm-1 is mounted at /srv",
        ]
    );
    let holders = &scan(&machine).disks[0].holders;
    assert_eq!(holders[0].device.as_deref(), Some(Path::new("/dev/dm-0")));
    assert_eq!((holders[6].kind, holders[6].name.as_deref()), (HolderKind::Mount, Some("/srv")));
}

#[test]
fn loop_devices_targets_and_pools_are_seen_too() {
    let machine = MachineTree::new("1 0 7:0 / /mnt ro - squashfs /dev/loop0 ro\n");
    for (name, number) in [("loop0", "7:0"), ("loop1", "7:1"), ("sda", "8:0"), ("sdb", "8:16")] {
        machine.disk(name, number, ByteSize::mib(128));
    }
    machine.file("sys/block/loop0/loop/backing_file", "/dev/sda\n");
    machine.file("sys/block/loop1/loop/backing_file", "/some/file\n");
    machine.link("dev/disk/by-id/scsi-one", "../../sda");
    machine.file("sys/kernel/config/target/core/iblock_0/store/udev_path", "/dev/disk/by-id/scsi-one\n");
    machine.content("sda", ByteSize::mib(128), |specimen| specimen.zfs("tank", true));
    machine.content("sdb", ByteSize::mib(128), |specimen| specimen.zfs("away", true));
    machine.file("proc/spl/kstat/zfs/tank/io", "");
    assert_eq!(
        told(&machine),
        [
            "/dev/sda is exported to other machines as store",
            "/dev/sda is behind the loop device /dev/loop0",
            "/dev/loop0 is mounted at /mnt",
            "/dev/sda is part of the ZFS pool tank",
        ]
    );
    assert!(scan(&machine).disks[1].holders.is_empty());
}

#[test]
fn devices_that_hold_each_other_end_the_look_and_not_the_machine() {
    let machine = MachineTree::new("");
    machine.disk("sda", "8:0", ByteSize::gib(8));
    machine.disk("md0", "9:0", ByteSize::gib(8));
    machine.file("sys/block/sda/holders/md0/dev", "9:0");
    machine.file("sys/block/md0/holders/sda/dev", "8:0");
    assert_eq!(told(&machine).len(), 2);
}
