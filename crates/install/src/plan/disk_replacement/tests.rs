use super::*;
use crate::plan::tests::{GUID, disk, found, mounted};
use base::failure::render;
use base::size::ByteSize;
use machine::inventory::{FoundEntry, Signature};

const PLACES: [(PartitionName, u64, u64); 7] = [
    (PartitionName::Bios, 1, 1),
    (PartitionName::Esp, 2, 256),
    (PartitionName::Config, 258, 64),
    (PartitionName::RootA, 322, 2048),
    (PartitionName::RootB, 2370, 2048),
    (PartitionName::Recovery, 4418, 2048),
    (PartitionName::Persistent, 6466, 9000),
];

/// A disk of the mirror, whose partitions are members of its arrays.
fn half(name: &str) -> Disk {
    let guid = Uuid::new_v5(&GUID, name.as_bytes());
    let part = |(number, (part, start, size)): (u32, (PartitionName, u64, u64))| {
        let array = Uuid::new_v5(&GUID, part.as_str().as_bytes()).to_string();
        let member =
            Signature { kind: SignatureKind::MdMember, label: None, uuid: Some(array), offset: 4096 };
        FoundPartition {
            start: ByteSize::mib(start),
            size: ByteSize::mib(size),
            entry: Some(FoundEntry { number, kind: part.type_guid(), uuid: part.uuid_in(guid) }),
            signatures: is_mirrored(part).then_some(member).into_iter().collect(),
            ..found(name, number.into(), Some(part.as_str()), None)
        }
    };
    Disk { partitions: (1..).zip(PLACES).map(part).collect(), ..disk(name, ByteSize::gib(16)) }
}

/// The arrays with these members; `md3` is that of the third partition.
fn arrays(members: &[&str], filled: &[&str]) -> Vec<ArrayStatus> {
    let named = |disks: &[&str], number: usize| disks.iter().map(|disk| format!("{disk}{number}")).collect();
    let array = |(number, (name, ..)): (usize, (PartitionName, u64, u64))| ArrayStatus {
        name: name.as_str().into(),
        device: format!("md{number}"),
        state: if members.len() == 2 { ArrayState::Whole } else { ArrayState::Degraded },
        disks: 2,
        members: named(members, number),
        filled: named(filled, number),
        percent: None,
    };
    (1..).zip(PLACES).filter(|(_, (name, ..))| is_mirrored(*name)).map(array).collect()
}

fn machine(disks: Vec<Disk>) -> Inventory {
    Inventory { disks, ..Inventory::default() }
}

fn chosen(disks: Vec<Disk>, arrays: &[ArrayStatus], path: Option<&str>) -> Result<DiskReplacement, String> {
    let replacement = disk_replacement(&machine(disks), arrays, None, path.map(Path::new));
    replacement.map_err(|failure| {
        format!("{:?} {}", failure.class(), render(&failure.into()).trim_start_matches("error: "))
    })
}

fn names(plan: &DiskReplacement) -> Vec<&'static str> {
    plan.arrays.iter().map(|array| array.partition.as_str()).collect()
}

const ALL: [&str; 5] = ["config", "root-a", "root-b", "recovery", "persistent"];

#[test]
fn a_new_disk_gets_the_places_of_the_other_one_and_identities_of_its_own() {
    let disks = vec![half("vda"), disk("vdb", ByteSize::gib(20))];
    let plan = chosen(disks, &arrays(&["vda"], &[]), None).unwrap();
    assert_eq!((plan.kind, names(&plan)), (ReplacementKind::New, ALL.to_vec()));
    assert_eq!((plan.source.name.as_str(), plan.disk.name.as_str()), ("vda", "vdb"));
    assert!(same_places(&plan.partitions, &plan.source_partitions) && !plan.erases_content());
    assert!(plan.partitions.iter().zip(&plan.source_partitions).all(|(own, other)| own.uuid != other.uuid));
    assert_eq!(plan.arrays[4], JoinedArray { partition: PartitionName::Persistent, device: "md7".into() });
    let text = plan.to_string();
    assert!(text.contains("  fills   config, root-a, root-b, recovery, persistent\n"), "{text}");
}

#[test]
fn a_disk_with_content_is_no_loss_that_goes_untold() {
    let mut other = disk("vdb", ByteSize::gib(20));
    other.partitions = vec![found("vdb", 1, Some("backup"), Some("home"))];
    let plan = chosen(vec![half("vda"), other], &arrays(&["vda"], &[]), None).unwrap();
    assert!(plan.erases_content() && plan.to_string().contains("  erases  /dev/vdb1"), "{plan}");
    let mut other = disk("vdb", ByteSize::gib(20));
    other.signatures = vec![Signature { kind: SignatureKind::Xfs, label: None, uuid: None, offset: 0 }];
    assert!(chosen(vec![half("vda"), other], &arrays(&["vda"], &[]), None).unwrap().erases_content());
}

#[test]
fn a_disk_that_was_away_keeps_its_table() {
    let plan = chosen(vec![half("vda"), half("vdb")], &arrays(&["vdb"], &[]), None).unwrap();
    assert_eq!((plan.kind, plan.disk.name.as_str()), (ReplacementKind::Returned, "vda"));
    assert_eq!(plan.partitions, partitions_of(&half("vda")).unwrap());
    assert_eq!(plan.nodes[&PartitionName::Persistent], Path::new("/dev/vda7"));
    let anew = plan.anew(half("vda").partitions);
    assert!(anew.kind == ReplacementKind::New && anew.erases_content() && anew.disk_guid != Uuid::nil());
    // A disk of another mirror is a new one.
    let mut other = half("vda");
    other.partitions[2].signatures[0].uuid = Some(Uuid::nil().to_string());
    let plan = chosen(vec![other, half("vdb")], &arrays(&["vdb"], &[]), None).unwrap();
    assert!(plan.kind == ReplacementKind::New && plan.erases_content());
}

#[test]
fn a_disk_that_an_array_gave_up_after_errors_can_be_added_again() {
    let held = |device: &str, above: Vec<Holder>| {
        let on = "/dev/vdb7".into();
        let md = Holder { on, kind: HolderKind::Md, name: None, device: Some(device.into()) };
        let holders = [md].into_iter().chain(above).collect();
        vec![half("vda"), Disk { holders, ..half("vdb") }]
    };
    let var = || vec![mounted("/dev/md7", "/var")];
    let plan = chosen(held("/dev/md7", var()), &arrays(&["vda"], &[]), None).unwrap();
    assert_eq!((plan.kind, plan.disk.name.as_str()), (ReplacementKind::Returned, "vdb"));
    for disks in [held("/dev/md99", var()), held("/dev/md7", vec![mounted("/dev/vdb3", "/mnt")])] {
        let error = chosen(disks, &arrays(&["vda"], &[]), None).unwrap_err();
        assert!(error.contains("it is in use"), "{error}");
    }
}

#[test]
fn what_was_begun_is_completed_with_the_same_disk() {
    let mut arrays = arrays(&["vda"], &[]);
    (arrays[0].members, arrays[0].state) = (vec!["vda3".into(), "vdb3".into()], ArrayState::Whole);
    (arrays[1].filled, arrays[1].state) = (vec!["vdb4".into()], ArrayState::Rebuilding);
    let disks = || vec![half("vda"), half("vdb"), disk("vdc", ByteSize::gib(20))];
    let plan = chosen(disks(), &arrays, None).unwrap();
    assert_eq!((plan.kind, plan.disk.name.as_str()), (ReplacementKind::Begun, "vdb"));
    assert_eq!(names(&plan), ["root-b", "recovery", "persistent"]);
    assert!(chosen(disks(), &arrays, Some("/dev/vdb")).is_ok());
    let error = chosen(disks(), &arrays, Some("/dev/vdc")).unwrap_err();
    assert!(error.starts_with("Invalid") && error.contains("installer disk replace /dev/vdb"), "{error}");
}

#[test]
fn a_whole_mirror_is_copied_from_the_disk_that_it_was_started_from() {
    let disks = machine(vec![half("vda"), half("vdb")]);
    let started = |disk: &str| PartitionName::Esp.uuid_in(Uuid::new_v5(&GUID, disk.as_bytes()));
    for (from, to) in [("vda", "vdb"), ("vdb", "vda")] {
        let plan =
            disk_replacement(&disks, &arrays(&["vda", "vdb"], &[]), Some(started(from)), None).unwrap();
        assert_eq!((plan.source.name.as_str(), plan.disk.name.as_str()), (from, to));
        assert!(plan.kind == ReplacementKind::Begun && plan.arrays.is_empty());
    }
}

#[test]
fn disks_that_cannot_join_are_refused_with_the_reason() {
    let one = arrays(&["vda"], &[]);
    let with = |change: fn(&mut Disk)| {
        let mut other = disk("vdb", ByteSize::gib(20));
        change(&mut other);
        vec![half("vda"), other]
    };
    for (change, why) in [
        (
            (|disk| disk.size = ByteSize::gib(10)) as fn(&mut Disk),
            "too small: the partitions of the other disk need",
        ),
        (|disk| disk.logical_sector = 4096, "it has sectors of 4096 bytes, and the other disk of 512"),
        (|disk| disk.read_only = true, "it is read-only"),
        (
            |disk| disk.holders = vec![mounted("/dev/vdb", "/mnt")],
            "it is in use: /dev/vdb is mounted at /mnt",
        ),
        (|disk| disk.removable = true, "it is removable, and has to be named"),
    ] {
        let error = chosen(with(change), &one, None).unwrap_err();
        assert!(error.starts_with("Hardware this machine has no disk") && error.contains(why), "{error}");
        if !why.contains("removable") {
            let error = chosen(with(change), &one, Some("/dev/vdb")).unwrap_err();
            assert!(error.starts_with("Hardware") && error.contains(why), "{error}");
        }
    }
    assert!(chosen(with(|disk| disk.removable = true), &one, Some("/dev/vdb")).is_ok());
    let two = vec![half("vda"), disk("vdb", ByteSize::gib(16)), disk("vdc", ByteSize::gib(16))];
    let error = chosen(two.clone(), &one, None).unwrap_err();
    assert!(error.contains("2 disks can join the mirror") && error.contains("disk replace DISK"), "{error}");
    for (path, why) in [
        ("/dev/vda", "Invalid /dev/vda is the disk that this node runs from"),
        ("/dev/vda3", "Invalid /dev/vda3 is a partition of /dev/vda"),
        ("/dev/vdx", "Invalid there is no disk /dev/vdx"),
    ] {
        let error = chosen(two.clone(), &one, Some(path)).unwrap_err();
        assert!(error.starts_with(why), "{error}");
    }
    let error = chosen(vec![half("vda")], &one, None).unwrap_err();
    assert!(error.contains("there is no other disk"), "{error}");
}

#[test]
fn a_disk_that_is_smaller_by_some_sectors_is_refused_with_the_bytes_that_it_lacks() {
    let sized = |size: ByteSize| {
        let disks = vec![half("vda"), disk("vdb", size)];
        chosen(disks, &arrays(&["vda"], &[]), Some("/dev/vdb"))
    };
    // The last partition ends at 15466 MiB; 33 sectors behind it are for the table's second copy.
    let least = ByteSize::mib(15_466) + ByteSize::bytes(33 * 512);
    assert!(sized(least).is_ok());
    let error = sized(least - ByteSize::bytes(4096)).unwrap_err();
    let why = "it is 4096 bytes (4 KiB) too small: the partitions of the other disk need 16217293312 bytes";
    assert!(error.starts_with("Hardware") && error.contains(why), "{error}");
}

#[test]
fn a_node_without_a_mirror_and_one_without_a_whole_disk_are_refused() {
    let error = chosen(vec![half("vda")], &[], None).unwrap_err();
    assert!(error.starts_with("Invalid") && error.contains("install.mirror"), "{error}");
    let mut crossed = arrays(&["vda"], &[]);
    crossed[0].members = vec!["vdb3".into()];
    let error = chosen(vec![half("vda"), half("vdb")], &crossed, None).unwrap_err();
    assert!(error.starts_with("Hardware no disk of this mirror has the whole system"), "{error}");
    assert!(error.contains("mdadm /dev/mdN --re-add"), "{error}");
}
