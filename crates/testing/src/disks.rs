//! Disks of inventories, in the type of the caller: this crate does not know it.

use base::size::ByteSize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An empty disk of a virtual machine.
pub fn disk<Disk: DeserializeOwned>(name: &str, size: ByteSize) -> Disk {
    serde_json::from_value(empty(name, size)).unwrap()
}

fn empty(name: &str, size: ByteSize) -> Value {
    json!({
        "name": name, "path": format!("/dev/{name}"), "size": size, "logical_sector": 512, "physical_sector": 512,
        "rotational": false, "removable": false, "read_only": false, "optical": false, "transport": "virtio",
        "model": "QEMU HARDDISK", "serial": format!("serial-{name}"), "wwn": null,
        "links": [format!("/dev/disk/by-id/virtio-serial-{name}")], "boot_medium": false, "partitions": [],
    })
}

/// A disk of 32 GiB with the partitions of a node. Those of an unfinished install have no file system of the firmware.
pub fn node_disk<Disk: DeserializeOwned>(name: &str, finished: bool) -> Disk {
    let mut disk = empty(name, ByteSize::gib(32));
    let names = ["bios", "esp", "config", "root-a", "root-b", "recovery", "persistent", "data"];
    let partition = |(number, label): (u64, &str)| {
        let fat = json!({ "kind": "vfat", "label": "NQRUST_ESP", "uuid": null, "offset": 82 });
        let signatures = if finished && label == "esp" { vec![fat] } else { vec![] };
        json!({
            "name": format!("{name}{number}"), "path": format!("/dev/{name}{number}"),
            "start": ByteSize::gib(number), "size": ByteSize::gib(1), "label": label, "signatures": signatures,
            "entry": {
                "number": number, "kind": "c12a7328-f81f-11d2-ba4b-00a0c93ec93b",
                "uuid": format!("00000000-0000-0000-0000-{number:012x}"),
            },
            "links": [format!("/dev/disk/by-id/virtio-serial-{name}-part{number}")],
        })
    };
    disk["partitions"] = (1..).zip(names).map(partition).collect();
    serde_json::from_value(disk).unwrap()
}
