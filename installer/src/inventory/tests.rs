use super::*;
use base::size::ByteSize;
use model::config::disk::Transport;

mod content;
mod holders;
mod paths;
use crate::inventory::specimens::Specimen;
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::symlink;

pub(crate) struct Machine(tempfile::TempDir, RefCell<Vec<Specimen>>);

impl Machine {
    pub(crate) fn new(mountinfo: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap(), RefCell::default());
        machine.file("proc/self/mountinfo", mountinfo);
        machine.file("proc/swaps", "Filename Type Size Used Priority\n");
        fs::create_dir_all(machine.0.path().join("sys/block")).unwrap();
        machine
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub(crate) fn disk(&self, name: &str, number: &str, size: ByteSize) {
        self.file(&format!("sys/block/{name}/size"), &format!("{}\n", size.get() / 512));
        self.file(&format!("sys/block/{name}/dev"), &format!("{number}\n"));
        self.link(&format!("sys/dev/block/{number}"), &format!("../../block/{name}"));
        self.link(&format!("sys/class/block/{name}"), &format!("../../block/{name}"));
    }

    pub(crate) fn partition(&self, disk: &str, name: &str, number: &str) {
        self.placed(disk, name, number, ByteSize::mib(1), ByteSize::mib(2));
    }

    pub(crate) fn placed(&self, disk: &str, name: &str, number: &str, start: ByteSize, size: ByteSize) {
        let [start, size] = [start, size].map(|bytes| (bytes.get() / 512).to_string());
        // The kernel counts partitions by the digits at the end of their names.
        let place = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        for (file, text) in [("partition", place), ("start", &start), ("size", &size), ("dev", number)] {
            self.file(&format!("sys/block/{disk}/{name}/{file}"), text);
        }
        self.link(&format!("sys/dev/block/{number}"), &format!("../../block/{disk}/{name}"));
        self.link(&format!("sys/class/block/{name}"), &format!("../../block/{disk}/{name}"));
    }

    /// Makes the node of a disk or partition hold what `make` writes.
    pub(crate) fn content(&self, name: &str, size: ByteSize, make: fn(&Specimen) -> &Specimen) {
        let specimen = Specimen::new(size.get(), 512);
        make(&specimen);
        self.node(name, specimen);
    }

    /// Makes the node of a disk or partition that file.
    pub(crate) fn node(&self, name: &str, specimen: Specimen) {
        let node = self.0.path().join("dev").join(name);
        fs::create_dir_all(node.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&node);
        symlink(&specimen.path, node).unwrap();
        self.1.borrow_mut().push(specimen);
    }

    pub(crate) fn scan(&self) -> Inventory {
        Inventory::scan(&Roots::below(self.0.path())).unwrap()
    }
}

#[test]
fn a_disk_is_told_with_what_identifies_it() {
    let machine = Machine::new("");
    machine.disk("vda", "254:0", ByteSize::gib(20));
    machine.file("sys/block/vda/serial", "disk-one");
    machine.file("sys/block/vda/queue/logical_block_size", "4096\n");
    machine.file("sys/block/vda/queue/rotational", "1\n");
    machine.partition("vda", "vda1", "254:1");
    machine.file("sys/block/vda/vda1/uevent", "PARTN=1\nPARTNAME=old data\n");
    machine.link("dev/disk/by-id/virtio-disk-one", "../../vda");
    let inventory = machine.scan();
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
    let machine = Machine::new("");
    for (name, number) in [("loop0", "7:0"), ("zram0", "252:0"), ("dm-0", "253:0"), ("sr0", "11:0")] {
        machine.disk(name, number, ByteSize::gib(1));
    }
    machine.disk("sdb", "8:16", ByteSize::bytes(0));
    assert!(machine.scan().disks.is_empty());
}

#[test]
fn the_boot_medium_is_recognised_on_an_optical_drive_and_on_a_partition() {
    for (number, source) in [("11:0", "/dev/sr0"), ("8:1", "/dev/sda1")] {
        let line = format!("1 0 {number} / /run/initramfs/live ro - iso9660 {source} ro\n");
        let machine = Machine::new(&line);
        machine.disk("sr0", "11:0", ByteSize::gib(1));
        machine.disk("sda", "8:0", ByteSize::gib(8));
        machine.partition("sda", "sda1", "8:1");
        let scan = machine.scan();
        let boot: Vec<_> = scan.disks.iter().filter(|disk| disk.boot_medium).collect();
        assert_eq!(boot.len(), 1);
        assert!(source.starts_with(boot[0].path.to_str().unwrap()));
    }
}

#[test]
fn the_boot_medium_is_recognised_through_a_loop_device_over_a_file() {
    let machine = Machine::new(
        "1 0 8:2 / /run/stick rw - ext4 /dev/sda2 rw\n2 0 7:3 / /run/initramfs/live ro - iso9660 /dev/loop3 ro\n",
    );
    machine.disk("sda", "8:0", ByteSize::gib(8));
    machine.partition("sda", "sda2", "8:2");
    machine.disk("loop3", "7:3", ByteSize::gib(1));
    machine.file("sys/block/loop3/loop/backing_file", "/run/stick/media/full.iso\n");
    let scan = machine.scan();
    assert!(scan.disks[0].boot_medium);
}

#[test]
fn a_card_is_what_has_a_device_behind_it() {
    let machine = Machine::new("");
    machine.file("sys/class/net/lo/address", "00:00:00:00:00:00");
    machine.file("sys/class/net/ens3/address", "52:54:00:12:34:56\n");
    machine.file("sys/class/net/ens3/carrier", "1\n");
    machine.file("sys/class/net/ens3/speed", "-1\n");
    machine.file("sys/class/net/ens3/device/vendor", "0x1af4");
    let nics = machine.scan().nics;
    assert_eq!(nics.len(), 1);
    assert_eq!((nics[0].name.as_str(), nics[0].carrier, nics[0].speed), ("ens3", Some(true), None));
    assert_eq!((nics[0].driver.as_deref(), nics[0].temporary_mac), (None, false));
}

#[test]
fn an_address_that_is_not_the_cards_own_is_told_apart() {
    let machine = Machine::new("");
    for (name, kind) in [("ens3", "0"), ("ens4", "1"), ("ens5", "3")] {
        machine.file(&format!("sys/class/net/{name}/address"), "52:54:00:12:34:56\n");
        machine.file(&format!("sys/class/net/{name}/addr_assign_type"), &format!("{kind}\n"));
        machine
            .link(&format!("sys/class/net/{name}/device/driver"), "../../../bus/virtio/drivers/virtio_net");
    }
    // A card in a bond shows the bond's address; the kernel has the card's own in another file.
    machine.file("sys/class/net/ens5/bonding_slave/perm_hwaddr", "52:54:00:12:34:57\n");
    let nics = machine.scan().nics;
    assert!(nics.iter().all(|nic| nic.driver.as_deref() == Some("virtio_net")), "{nics:?}");
    let told: Vec<_> = nics.iter().map(|nic| (nic.mac.as_str(), nic.temporary_mac)).collect();
    assert_eq!(
        told,
        [("52:54:00:12:34:56", false), ("52:54:00:12:34:56", true), ("52:54:00:12:34:57", false)]
    );
}

#[test]
fn an_inventory_goes_through_json_unchanged() {
    let machine = Machine::new("");
    machine.disk("nvme0n1", "259:0", ByteSize::bytes(1_000_204_886_016));
    machine.partition("nvme0n1", "nvme0n1p1", "259:1");
    let scan = machine.scan();
    let text = serde_json::to_string(&scan).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&text).unwrap(), scan);
}

#[test]
fn partitions_have_their_entries_and_those_of_the_second_copy_count_where_the_first_is_damaged() {
    use base::command::{Invocation, Runner, SystemRunner};
    use std::os::unix::fs::FileExt;
    let uuid = uuid::uuid!("6d0e4a52-8c2c-4a4f-9d55-8e1f3c6b7a90");
    let machine = Machine::new("");
    machine.disk("nvme0n1", "259:0", ByteSize::mib(64));
    machine.partition("nvme0n1", "nvme0n1p1", "259:1");
    machine.file("dev/nvme0n1", "");
    let node = machine.0.path().join("dev/nvme0n1");
    let disk = fs::File::options().write(true).open(&node).unwrap();
    disk.set_len(64 << 20).unwrap();
    let make = Invocation::new("sgdisk").args(["-n", "8:2048:6143", "-c", "8:data", "-u"]);
    SystemRunner.run(&make.arg(format!("8:{uuid}")).arg(&node)).unwrap();
    let make =
        Invocation::new("mkfs.ext4").args(["-q", "-F", "-L", "HARV_LH_DEFAULT", "-E", "offset=1048576"]);
    SystemRunner.run(&make.arg(&node).arg("2M")).unwrap();
    let seen = machine.scan().disks.remove(0).partitions;
    let entry = seen[0].entry.unwrap();
    assert_eq!((seen.len(), entry.number, entry.uuid), (1, 8, uuid));
    // How the kernel sees the disk after a power cut in the middle of a write.
    fs::remove_dir_all(machine.0.path().join("sys/block/nvme0n1/nvme0n1p1")).unwrap();
    disk.write_all_at(&[1], 600).unwrap();
    let unseen = machine.scan().disks.remove(0).partitions;
    assert_eq!(
        (unseen[0].start, unseen[0].size, unseen[0].entry),
        (ByteSize::mib(1), ByteSize::mib(2), Some(entry))
    );
    assert_eq!(unseen[0].path, Path::new("/dev/nvme0n1p8"));
    assert_eq!(unseen[0].label.as_deref(), Some("data"));
    assert_eq!(unseen[0].signatures[0].label.as_deref(), Some("HARV_LH_DEFAULT"));
}
