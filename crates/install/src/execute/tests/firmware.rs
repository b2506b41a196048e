//! Runs on a machine with a UEFI firmware.

use super::*;

/// The messages of a run whose firmware has its variables where `make` puts them.
fn told(make: impl FnOnce(&Path)) -> (Bench, String) {
    let bench = Bench::new();
    make(&bench.host.path("efivars"));
    bench.run().unwrap();
    let told = bench.recorder.0.lock().unwrap().iter().map(|event| format!("{}\n", event.message)).collect();
    (bench, told)
}

#[test]
fn the_firmware_gets_an_entry_once_the_disk_is_bootable() {
    let (bench, told) = told(|path| std::fs::create_dir(path).unwrap());
    assert!(told.contains("The firmware starts /dev/vda first, as NQRust Hypervisor"), "{told}");
    let commit = told.find("Making the disk bootable").unwrap();
    assert!(commit < told.find("The firmware starts").unwrap(), "{told}");
    let count = std::fs::read_dir(bench.host.path("efivars")).unwrap().count();
    assert_eq!(count, 2, "the entry and the order");
}

#[test]
fn a_firmware_that_takes_no_entry_is_no_reason_to_have_no_node() {
    let (bench, told) = told(|path| std::fs::write(path, "").unwrap());
    assert!(told.contains("The firmware has no entry for /dev/vda: listing "), "{told}");
    assert!(bench.disk.committed());
}
