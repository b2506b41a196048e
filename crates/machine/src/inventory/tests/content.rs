//! Content of disks and partitions.

use super::*;

#[test]
fn disks_and_partitions_tell_what_is_on_them() {
    let machine = MachineTree::new("");
    let size = ByteSize::mib(64);
    machine.disk("vda", "254:0", size);
    machine.partition("vda", "vda1", "254:1");
    machine.partition("vda", "vda2", "254:2");
    machine.content("vda", size, |specimen| specimen.gpt(&[(1 << 20, 2 << 20, "one")]));
    machine.content("vda1", ByteSize::mib(2), |specimen| specimen.ext4("HARV_LH_DEFAULT"));
    machine.content("vda2", ByteSize::mib(2), |s| s);
    let disk = &scan(&machine).disks[0];
    assert_eq!(disk.unread, None);
    assert_eq!(disk.signatures.iter().map(|found| found.kind).collect::<Vec<_>>(), [SignatureKind::Gpt]);
    assert_eq!(disk.partitions[0].describe(), "/dev/vda1  2 MiB  (ext4 \"HARV_LH_DEFAULT\")");
    assert_eq!(disk.partitions[1].describe(), "/dev/vda2  2 MiB");
}

#[test]
fn a_file_system_on_a_whole_disk_is_told_with_the_disk() {
    let machine = MachineTree::new("");
    let size = ByteSize::mib(64);
    machine.disk("vdb", "254:16", size);
    machine.content("vdb", size, |specimen| specimen.ext4("HARV_LH_DEFAULT"));
    let disk = &scan(&machine).disks[0];
    assert_eq!(disk.describe(), "/dev/vdb: 64 MiB, ext4 \"HARV_LH_DEFAULT\"");
}

#[test]
fn a_node_that_cannot_be_read_is_told_and_not_taken_for_empty() {
    let machine = MachineTree::new("");
    machine.disk("vda", "254:0", ByteSize::mib(64));
    let disk = &scan(&machine).disks[0];
    assert!(disk.unread.as_ref().is_some_and(|why| why.starts_with("/dev/vda: ")), "{:?}", disk.unread);
    // A device that is shorter than sysfs says fails at its end.
    machine.content("vda", ByteSize::mib(32), |specimen| specimen.luks(2, "vault"));
    let disk = &scan(&machine).disks[0];
    assert!(disk.unread.is_some() && disk.signatures[0].kind == SignatureKind::Luks2, "{disk:?}");
}
