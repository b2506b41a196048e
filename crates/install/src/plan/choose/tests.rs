use super::*;
use crate::plan::tests::{disk, mounted};
use base::failure::render;
use base::size::ByteSize;
use model::config::disk::Transport;

/// A small SSD, a large hard disk, and a stick.
fn machine() -> Inventory {
    let mut ssd = disk("nvme0n1", ByteSize::gib(480));
    ssd.transport = Transport::Nvme;
    ssd.model = Some("SSD 980".into());
    ssd.wwn = Some("eui.0025".into());
    ssd.links = vec!["/dev/disk/by-id/nvme-SSD_980".into(), "/dev/disk/by-path/pci-0000:01".into()];
    let mut hdd = disk("sda", ByteSize::gib(4000));
    hdd.transport = Transport::Sas;
    hdd.rotational = true;
    hdd.model = Some("HDD 4T".into());
    let mut stick = disk("sdb", ByteSize::gib(32));
    stick.transport = Transport::Usb;
    stick.removable = true;
    stick.model = None;
    Inventory { disks: vec![ssd, hdd, stick], ..Inventory::default() }
}

/// The name of the chosen disk, or the whole text of the refusal.
fn pick(inventory: &Inventory, clauses: &serde_json::Value) -> Result<String, String> {
    let selector: DiskSelector = serde_json::from_value(clauses.clone()).unwrap();
    let found = chosen(DiskSearch { inventory, key: DATA, least: ByteSize::default() }, &selector);
    found.map(|disk| disk.name.clone()).map_err(|failure| render(&failure.into()))
}

#[test]
fn each_clause_finds_the_disk_that_meets_it() {
    let cases = [
        (r#"{"serial": "serial-sda"}"#, "sda"),
        (r#"{"serial": "serial-s*", "rotational": true}"#, "sda"),
        (r#"{"wwn": "eui.0025"}"#, "nvme0n1"),
        (r#"{"model": "SSD*"}"#, "nvme0n1"),
        (r#"{"by_id": "nvme-SSD_980"}"#, "nvme0n1"),
        (r#"{"by_id": "virtio-serial-sda"}"#, "sda"),
        (r#"{"by_path": "pci-*"}"#, "nvme0n1"),
        (r#"{"size": ">=1Ti"}"#, "sda"),
        (r#"{"size": "400Gi..500Gi"}"#, "nvme0n1"),
        (r#"{"transport": "sas"}"#, "sda"),
        (r#"{"rotational": true}"#, "sda"),
        (r#"{"rotational": false, "size": ">=100Gi"}"#, "nvme0n1"),
        (r#"{"serial": "serial-sdb"}"#, "sdb"),
    ];
    for (clauses, wanted) in cases {
        let found = pick(&machine(), &serde_json::from_str(clauses).unwrap());
        assert_eq!(found.as_deref(), Ok(wanted), "{clauses}");
    }
}

#[test]
fn a_clause_that_no_disk_meets_is_told_for_each_disk() {
    let cases: [(&str, &[&str]); 9] = [
        (r#"{"serial": "serial"}"#, &["/dev/nvme0n1: its serial is serial-nvme0n1; /dev/sda: its serial"]),
        (r#"{"wwn": "eui.9*"}"#, &["/dev/nvme0n1: its wwn is eui.0025; /dev/sda: its wwn is none"]),
        (r#"{"model": "ssd*"}"#, &["its model is SSD 980", "/dev/sdb: its model is none"]),
        (r#"{"by_id": "nvme"}"#, &["/dev/nvme0n1: its by_id is nvme-SSD_980;"]),
        // A name in one directory says nothing about the other.
        (r#"{"by_path": "nvme-SSD_980"}"#, &["its by_path is pci-0000:01", "/dev/sda: its by_path is none"]),
        (r#"{"size": "<=16Gi"}"#, &["/dev/nvme0n1: its size is 480 GiB"]),
        (
            r#"{"transport": "ata"}"#,
            &["/dev/nvme0n1: its transport is nvme", "/dev/sdb: its transport is usb"],
        ),
        (
            r#"{"rotational": true, "transport": "nvme"}"#,
            &["/dev/nvme0n1: it is not rotational; /dev/sda: its transport is sas", "usb, it is not"],
        ),
        (r#"{"rotational": false, "model": "HDD*"}"#, &["/dev/sda: it is rotational"]),
    ];
    for (clauses, told) in cases {
        let text = pick(&machine(), &serde_json::from_str(clauses).unwrap()).unwrap_err();
        assert!(text.contains("no disk meets the clauses of install.data_disk"), "{text}");
        assert!(told.iter().all(|told| text.contains(told)), "{clauses}: {text}");
    }
    let text = pick(&Inventory::default(), &serde_json::json!({ "rotational": false })).unwrap_err();
    assert!(text.contains("no disk was found"), "{text}");
}

#[test]
fn clauses_that_several_disks_meet_are_refused_with_those_disks() {
    let text = pick(&machine(), &serde_json::json!({ "size": ">=100Gi" })).unwrap_err();
    assert!(text.contains("2 disks meet the clauses of install.data_disk"), "{text}");
    assert!(text.contains("/dev/nvme0n1: 480 GiB") && text.contains("/dev/sda: "), "{text}");
    assert!(!text.contains("/dev/sdb") && text.contains("such as serial"), "{text}");
}

#[test]
fn a_removable_disk_needs_its_serial_number() {
    for clauses in [r#"{"transport": "usb"}"#, r#"{"serial": "serial-sdb*"}"#] {
        let text = pick(&machine(), &serde_json::from_str(clauses).unwrap()).unwrap_err();
        assert!(text.contains("/dev/sdb: it is removable, and its serial number is not given"), "{text}");
    }
    // A second disk that meets the clauses does not make the choice ambiguous.
    let clauses = serde_json::json!({ "size": "<=500Gi" });
    assert_eq!(pick(&machine(), &clauses).as_deref(), Ok("nvme0n1"));
    assert_eq!(
        pick(&machine(), &serde_json::json!("/dev/disk/by-id/virtio-serial-sdb")).as_deref(),
        Ok("sdb")
    );
    for path in ["/dev/sdb", "/dev/disk/by-path/usb-serial-sdb"] {
        let mut machine = machine();
        machine.disks[2].links.push("/dev/disk/by-path/usb-serial-sdb".into());
        let text = pick(&machine, &serde_json::json!(path)).unwrap_err();
        assert!(text.contains(&format!("is removable, and {path} does not say which it is")), "{text}");
        assert!(text.contains("a link in /dev/disk/by-id that has its serial number, serial-sdb."), "{text}");
    }
}

/// The machine with the second disk as another path to the first.
fn two_paths() -> Inventory {
    let mut machine = machine();
    let first = machine.disks[0].clone();
    machine.disks[1] = Disk { name: "sda".into(), path: "/dev/sda".into(), links: vec![], ..first };
    machine
}

#[test]
fn paths_to_one_disk_are_refused_however_they_are_meant_and_the_hint_names_the_map() {
    for selector in [
        serde_json::json!("/dev/sda"),
        serde_json::json!({ "transport": "nvme" }),
        serde_json::json!({ "wwn": "0x0025" }),
        serde_json::json!({ "by_path": "pci-0000:01" }),
    ] {
        let text = pick(&two_paths(), &selector).unwrap_err();
        assert!(text.contains("are paths to one disk, eui.0025, and no multipath map"), "{text}");
        assert!(
            text.contains("Start multipathd, then name the map: install.data_disk: {wwn: '0025'}"),
            "{text}"
        );
    }
    // Once there is the map, the hint selects it.
    let mut mapped = two_paths();
    let paths = mapped.disks.drain(..2).map(|disk| machine::inventory::DiskPath {
        name: disk.name,
        path: disk.path,
        links: disk.links,
    });
    let paths = paths.collect();
    mapped.disks.push(Disk { name: "dm-0".into(), paths, ..machine().disks[0].clone() });
    for selector in [serde_json::json!({ "wwn": "0025" }), serde_json::json!({ "by_path": "pci-0000:01" })] {
        assert_eq!(pick(&mapped, &selector).as_deref(), Ok("dm-0"));
    }
}

#[test]
fn disks_of_one_world_wide_name_that_differ_otherwise_are_different_disks() {
    type Change = fn(&mut Inventory);
    let cases: [Change; 4] = [
        |machine| machine.disks[1].serial = Some("OTHER".into()),
        |machine| machine.disks[1].size = ByteSize::gib(500),
        |machine| machine.disks.iter_mut().for_each(|disk| disk.wwn = Some("eui.0000000000000000".into())),
        // Namespaces of one controller.
        |machine| (machine.disks[0].namespace, machine.disks[1].namespace) = (Some(1), Some(2)),
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let mut machine = two_paths();
        change(&mut machine);
        assert_eq!(pick(&machine, &serde_json::json!("/dev/sda")).as_deref(), Ok("sda"), "case {number}");
    }
}

#[test]
fn a_link_that_does_not_say_which_namespace_it_means_is_refused_with_the_full_names() {
    let mut machine = machine();
    let bare = "/dev/disk/by-id/nvme-SSD_980_S1";
    let namespace = |number: u32| Disk {
        name: format!("nvme0n{number}"),
        path: format!("/dev/nvme0n{number}").into(),
        serial: Some("S1".into()),
        wwn: Some(format!("eui.002538500000000{number}")),
        namespace: Some(number),
        links: vec![format!("{bare}_{number}").into()],
        ..machine.disks[0].clone()
    };
    let mut both = [namespace(1), namespace(2)];
    both[1].links.push(bare.into());
    machine.disks.splice(0..1, both);
    let text = pick(&machine, &serde_json::json!(bare)).unwrap_err();
    assert!(text.contains("is ambiguous: it can be /dev/nvme0n2 or /dev/nvme0n1"), "{text}");
    assert!(text.contains(&format!("{bare}_2 (480 GiB) or {bare}_1 (480 GiB)")), "{text}");
    let text = pick(&machine, &serde_json::json!({ "by_id": "nvme-SSD_980_S1" })).unwrap_err();
    assert!(text.contains("2 disks meet the clauses") && text.contains("such as wwn: "), "{text}");
    for (path, wanted) in [(format!("{bare}_1"), "nvme0n1"), (format!("{bare}_2"), "nvme0n2")] {
        assert_eq!(pick(&machine, &serde_json::json!(path)).as_deref(), Ok(wanted));
    }
    // Nor does a node say it, whose number is another after a restart.
    let text = pick(&machine, &serde_json::json!("/dev/nvme0n1")).unwrap_err();
    assert!(text.contains("/dev/nvme0n1 is ambiguous: it can be /dev/nvme0n1 or /dev/nvme0n2"), "{text}");
    assert!(text.contains(&format!("{bare}_1 (480 GiB) or {bare}_2 (480 GiB)")), "{text}");
    // It is all that there is where no link leads to the disk, and enough where the controller has one namespace.
    let mut bare_names = machine.clone();
    bare_names.disks.iter_mut().for_each(|disk| disk.links.clear());
    assert_eq!(pick(&bare_names, &serde_json::json!("/dev/nvme0n1")).as_deref(), Ok("nvme0n1"));
    machine.disks.retain(|disk| disk.name != "nvme0n2");
    assert_eq!(pick(&machine, &serde_json::json!("/dev/nvme0n1")).as_deref(), Ok("nvme0n1"));
}

#[test]
fn a_world_wide_name_is_the_same_in_the_forms_of_kernel_and_udev() {
    let mut machine = machine();
    machine.disks[1].wwn = Some("naa.5000C500A1B2C3D4".into());
    for wanted in ["0x5000c500a1b2c3d4", "naa.5000c500a1b2c3d4", "5000c500*", "0x5000C5*"] {
        assert_eq!(pick(&machine, &serde_json::json!({ "wwn": wanted })).as_deref(), Ok("sda"), "{wanted}");
    }
    assert!(pick(&machine, &serde_json::json!({ "wwn": "0x5000c5" })).is_err());
}

#[test]
fn several_disks_are_told_with_a_clause_that_tells_them_apart() {
    let two = |change: fn(&mut Disk)| {
        let mut machine = machine();
        machine.disks[1] = machine.disks[0].clone();
        machine.disks[1].name = "nvme1n1".into();
        machine.disks[1].path = "/dev/nvme1n1".into();
        machine.disks[1].wwn = None;
        machine.disks.iter_mut().for_each(change);
        pick(&machine, &serde_json::json!({ "model": "SSD*" })).unwrap_err()
    };
    let text = two(|disk| disk.serial = Some(format!("S-{}", disk.name)));
    assert!(text.contains("such as serial: S-nvme0n1."), "{text}");
    let text = two(|disk| {
        (disk.serial, disk.wwn) = (None, None);
        disk.links = vec![format!("/dev/disk/by-path/pci-{}", disk.name).into()];
    });
    assert!(text.contains("such as by_path: pci-nvme0n1."), "{text}");
    let text = two(|disk| (disk.serial, disk.wwn, disk.links) = (None, None, vec![]));
    assert!(text.contains("They report nothing that differs: detach all but one."), "{text}");
}

#[test]
fn a_read_only_disk_meets_no_clause_and_says_so() {
    let mut machine = machine();
    machine.disks[1].read_only = true;
    let text = pick(&machine, &serde_json::json!({ "rotational": true })).unwrap_err();
    assert!(text.contains("/dev/sda: it is read-only"), "{text}");
}

#[test]
fn the_boot_medium_meets_no_clause_and_is_no_disk_by_name_either() {
    let mut machine = machine();
    machine.disks[2].boot_medium = true;
    let text = pick(&machine, &serde_json::json!({ "serial": "serial-sdb" })).unwrap_err();
    assert!(text.contains("/dev/sdb: it holds the medium that this system runs from"), "{text}");
    let text = pick(&machine, &serde_json::json!("/dev/sdb")).unwrap_err();
    assert!(text.contains("/dev/sdb holds the medium that this system runs from"), "{text}");
    assert!(text.contains("Set install.data_disk to another disk"), "{text}");
}

#[test]
fn a_disk_in_use_is_refused_however_it_is_meant() {
    let mut machine = machine();
    machine.disks[1].holders = vec![mounted("/dev/sda1", "/mnt"), mounted("/dev/sda2", "/srv")];
    for selector in [serde_json::json!("/dev/sda"), serde_json::json!({ "rotational": true })] {
        let text = pick(&machine, &selector).unwrap_err();
        assert!(text.contains("/dev/sda is in use: /dev/sda1 is mounted at /mnt"), "{text}");
    }
}

#[test]
fn a_star_stands_for_any_characters_and_a_question_mark_for_one() {
    for pattern in
        ["*EVO*", "Samsung*", "*970*", "Samsung SSD ?70 EVO", "S*9*O", "*", "Samsung SSD 970 EVO", "***VO"]
    {
        assert!(super::judge::matches(pattern, "Samsung SSD 970 EVO"), "{pattern}");
    }
    for pattern in ["EVO", "*evo*", "Samsung", "?amsung", "*PRO*", "", "Samsung SSD 970 EVO?"] {
        assert!(!super::judge::matches(pattern, "Samsung SSD 970 EVO"), "{pattern}");
    }
}
