use super::*;
use base::size::ByteSize;
use model::config::disk::Transport;

mod content;
mod holders;
mod paths;
use std::fs;
use testing::machine::MachineTree;

fn scan(machine: &MachineTree) -> Inventory {
    Inventory::scan(&Roots::below(machine.path())).unwrap()
}

#[test]
fn a_disk_is_told_with_what_identifies_it() {
    let machine = MachineTree::new("");
    machine.disk("vda", "254:0", ByteSize::gib(20));
    machine.file("sys/block/vda/serial", "disk-one");
    machine.file("sys/block/vda/queue/logical_block_size", "4096\n");
    machine.file("sys/block/vda/queue/rotational", "1\n");
    machine.partition("vda", "vda1", "254:1");
    machine.file("sys/block/vda/vda1/uevent", "PARTN=1\nPARTNAME=old data\n");
    machine.link("dev/disk/by-id/virtio-disk-one", "../../vda");
    let inventory = scan(&machine);
    let disk = inventory.find(Path::new("/dev/disk/by-id/virtio-disk-one")).unwrap();
    assert_eq!(disk.path, Path::new("/dev/vda"));
    assert_eq!((disk.size, disk.logical_sector), (ByteSize::gib(20), 4096));
    assert_eq!(disk.serial.as_deref(), Some("disk-one"));
    assert_eq!(disk.transport, Transport::Virtio);
    assert!(disk.rotational && !disk.read_only && disk.holders.is_empty());
    assert_eq!(disk.partitions[0].start, ByteSize::mib(1));
    assert_eq!(disk.partitions[0].label.as_deref(), Some("old data"));
}

#[test]
fn synthetic_devices_empty_drives_and_idle_optical_drives_are_left_out() {
    let machine = MachineTree::new("");
    for (name, number) in [("loop0", "7:0"), ("zram0", "252:0"), ("dm-0", "253:0"), ("sr0", "11:0")] {
        machine.disk(name, number, ByteSize::gib(1));
    }
    machine.disk("sdb", "8:16", ByteSize::bytes(0));
    assert!(scan(&machine).disks.is_empty());
}

#[test]
fn the_boot_medium_is_recognized_on_an_optical_drive_and_on_a_partition() {
    for (number, source) in [("11:0", "/dev/sr0"), ("8:1", "/dev/sda1")] {
        let line = format!("1 0 {number} / /run/initramfs/live ro - iso9660 {source} ro\n");
        let machine = MachineTree::new(&line);
        machine.disk("sr0", "11:0", ByteSize::gib(1));
        machine.disk("sda", "8:0", ByteSize::gib(8));
        machine.partition("sda", "sda1", "8:1");
        let scan = scan(&machine);
        let boot: Vec<_> = scan.disks.iter().filter(|disk| disk.boot_medium).collect();
        assert_eq!(boot.len(), 1);
        assert!(source.starts_with(boot[0].path.to_str().unwrap()));
    }
}

#[test]
fn the_boot_medium_is_recognized_through_a_loop_device_over_a_file() {
    let machine = MachineTree::new(
        "1 0 8:2 / /run/stick rw - ext4 /dev/sda2 rw\n2 0 7:3 / /run/initramfs/live ro - iso9660 /dev/loop3 ro\n",
    );
    machine.disk("sda", "8:0", ByteSize::gib(8));
    machine.partition("sda", "sda2", "8:2");
    machine.disk("loop3", "7:3", ByteSize::gib(1));
    machine.file("sys/block/loop3/loop/backing_file", "/run/stick/media/full.iso\n");
    let scan = scan(&machine);
    assert!(scan.disks[0].boot_medium);
}

#[test]
fn a_card_is_what_has_a_device_behind_it() {
    let machine = MachineTree::new("");
    machine.file("sys/class/net/lo/address", "00:00:00:00:00:00");
    machine.file("sys/class/net/ens3/address", "52:54:00:12:34:56\n");
    machine.file("sys/class/net/ens3/carrier", "1\n");
    machine.file("sys/class/net/ens3/speed", "-1\n");
    machine.file("sys/class/net/ens3/device/vendor", "0x1af4");
    let nics = scan(&machine).nics;
    assert_eq!(nics.len(), 1);
    assert_eq!((nics[0].name.as_str(), nics[0].carrier, nics[0].speed), ("ens3", Some(true), None));
    assert_eq!((nics[0].driver.as_deref(), nics[0].temporary_mac), (None, false));
}

#[test]
fn an_address_that_is_not_the_cards_own_is_told_apart() {
    let machine = MachineTree::new("");
    for (name, kind) in [("ens3", "0"), ("ens4", "1"), ("ens5", "3")] {
        machine.file(&format!("sys/class/net/{name}/address"), "52:54:00:12:34:56\n");
        machine.file(&format!("sys/class/net/{name}/addr_assign_type"), &format!("{kind}\n"));
        machine
            .link(&format!("sys/class/net/{name}/device/driver"), "../../../bus/virtio/drivers/virtio_net");
    }
    // A card in a bond shows the bond's address; the kernel has the card's own in another file.
    machine.file("sys/class/net/ens5/bonding_slave/perm_hwaddr", "52:54:00:12:34:57\n");
    let nics = scan(&machine).nics;
    assert!(nics.iter().all(|nic| nic.driver.as_deref() == Some("virtio_net")), "{nics:?}");
    let told: Vec<_> = nics.iter().map(|nic| (nic.mac.as_str(), nic.temporary_mac)).collect();
    assert_eq!(
        told,
        [("52:54:00:12:34:56", false), ("52:54:00:12:34:56", true), ("52:54:00:12:34:57", false)]
    );
}

#[test]
fn an_inventory_goes_through_json_unchanged() {
    let machine = MachineTree::new("");
    machine.disk("nvme0n1", "259:0", ByteSize::bytes(1_000_204_886_016));
    machine.partition("nvme0n1", "nvme0n1p1", "259:1");
    let scan = scan(&machine);
    let text = serde_json::to_string(&scan).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&text).unwrap(), scan);
}

#[test]
fn partitions_have_their_entries_and_those_of_the_second_copy_count_where_the_first_is_damaged() {
    use base::command::{Invocation, Runner, SystemRunner};
    use std::os::unix::fs::FileExt;
    let uuid = uuid::uuid!("6d0e4a52-8c2c-4a4f-9d55-8e1f3c6b7a90");
    let machine = MachineTree::new("");
    machine.disk("nvme0n1", "259:0", ByteSize::mib(64));
    machine.partition("nvme0n1", "nvme0n1p1", "259:1");
    machine.file("dev/nvme0n1", "");
    let node = machine.path().join("dev/nvme0n1");
    let disk = fs::File::options().write(true).open(&node).unwrap();
    disk.set_len(64 << 20).unwrap();
    let make = Invocation::new("sgdisk").args(["-n", "8:2048:6143", "-c", "8:data", "-u"]);
    SystemRunner.run(&make.arg(format!("8:{uuid}")).arg(&node)).unwrap();
    let make =
        Invocation::new("mkfs.ext4").args(["-q", "-F", "-L", "HARV_LH_DEFAULT", "-E", "offset=1048576"]);
    SystemRunner.run(&make.arg(&node).arg("2M")).unwrap();
    let seen = scan(&machine).disks.remove(0).partitions;
    let entry = seen[0].entry.unwrap();
    assert_eq!((seen.len(), entry.number, entry.uuid), (1, 8, uuid));
    // How the kernel sees the disk after a power cut in the middle of a write.
    fs::remove_dir_all(machine.path().join("sys/block/nvme0n1/nvme0n1p1")).unwrap();
    disk.write_all_at(&[1], 600).unwrap();
    let unseen = scan(&machine).disks.remove(0).partitions;
    assert_eq!(
        (unseen[0].start, unseen[0].size, unseen[0].entry),
        (ByteSize::mib(1), ByteSize::mib(2), Some(entry))
    );
    assert_eq!(unseen[0].path, Path::new("/dev/nvme0n1p8"));
    assert_eq!(unseen[0].label.as_deref(), Some("data"));
    assert_eq!(unseen[0].signatures[0].label.as_deref(), Some("HARV_LH_DEFAULT"));
}
