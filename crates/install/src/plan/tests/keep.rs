//! Plans that keep the data partition.

use super::*;
use machine::inventory::FoundEntry;
use model::config::Role;
use model::config::{Keep, Wipe};

const KEPT: Uuid = uuid::uuid!("1d2c3b4a-0000-4000-8000-00000000000d");

fn config() -> InstallConfig {
    let mut config = trial();
    config.install.device = "/dev/vda".parse().ok();
    config.install.keep = vec![Keep::Data];
    config
}

/// A partition of an old system with its entry in the table.
fn old(
    disk: &str,
    number: u32,
    name: &str,
    label: Option<&str>,
    place: (ByteSize, ByteSize),
) -> FoundPartition {
    let entry = FoundEntry {
        number,
        kind: PartitionName::Data.type_guid(),
        uuid: if label.is_some() { KEPT } else { Uuid::new_v5(&KEPT, &[u8::try_from(number).unwrap()]) },
    };
    let (start, size) = place;
    FoundPartition { start, size, entry: Some(entry), ..found(disk, number.into(), Some(name), label) }
}

/// A disk of the predecessor: data is its sixth partition, and has no name.
fn machine_with_data(name: &str) -> Disk {
    let mut disk = disk(name, ByteSize::gib(40));
    let gib = ByteSize::gib;
    disk.partitions = vec![
        old(name, 1, "efi", None, (ByteSize::mib(1), ByteSize::mib(64))),
        old(name, 4, "state", None, (ByteSize::gib(1), gib(10))),
        old(name, 6, "", Some("HARV_LH_DEFAULT"), (gib(20), gib(12))),
        old(name, 7, "scratch", None, (gib(32), gib(4))),
    ];
    disk
}

fn two() -> Vec<Disk> {
    vec![disk("vda", ByteSize::gib(16)), machine_with_data("vdb")]
}

#[test]
fn the_text_says_what_is_kept_and_what_is_lost() {
    golden("keep.txt", &try_plan(&config(), &[machine_with_data("vda")]).unwrap().to_string());
    let mut apart = config();
    apart.install.data_disk = "/dev/vdb".parse().ok();
    golden("keep-apart.txt", &try_plan(&apart, &two()).unwrap().to_string());
}

#[test]
fn what_is_kept_stays_in_its_place_with_its_identity_and_is_not_formatted() {
    let plan = try_plan(&config(), &[machine_with_data("vda")]).unwrap();
    let data = plan.partition(PartitionName::Data).unwrap();
    assert_eq!(
        (data.number, data.uuid, data.start, data.size),
        (8, KEPT, ByteSize::gib(20), ByteSize::gib(12))
    );
    let persistent = plan.partition(PartitionName::Persistent).unwrap();
    assert_eq!(persistent.end(), data.start, "what lasts takes the room there is");
    assert!(plan.erased.len() == 3 && plan.erased.iter().all(|part| part.signatures.is_empty()));
    let json = serde_json::to_value(&plan).unwrap();
    assert!(!json["steps"].to_string().contains("HARV_LH_DEFAULT"));
    assert!(json.to_string().contains(&format!("nqrust.data=PARTUUID={KEPT}")));
}

#[test]
fn a_kept_disk_of_its_own_is_in_no_step_and_may_be_kept_where_nothing_may_be_wiped() {
    let mut config = config();
    config.install.data_disk = "/dev/vdb".parse().ok();
    config.install.wipe = Wipe::None;
    let plan = try_plan(&config, &two()).unwrap();
    assert!(plan.data_disk.is_none() && plan.partition(PartitionName::Data).is_none());
    let ids: Vec<_> = plan.steps.iter().map(Step::id).collect();
    assert!(!ids.contains(&"data-disk"), "{ids:?}");
    let json = serde_json::to_value(&plan.steps).unwrap().to_string();
    assert!(json.contains(&format!("nqrust.data=PARTUUID={KEPT}")) && !json.contains("HARV_LH_DEFAULT"));
}

#[test]
fn what_cannot_be_kept_is_refused_with_the_reason_and_what_would_do() {
    type Change = fn(&mut Vec<Disk>, &mut InstallConfig);
    let cases: [(&[&str], Class, Change); 9] = [
        (&["nothing on /dev/vda", "it has no partitions", "for the first time"], Class::Hardware, |d, _| {
            d[0].partitions.clear();
        }),
        (&["nothing on /dev/vda", "/dev/vda6  12 GiB"], Class::Hardware, |d, _| {
            d[0].partitions[2].signatures = vec![ext4("other")];
        }),
        (
            &["nothing on /dev/vda", "/dev/vdb6", "set install.data_disk to /dev/vdb"],
            Class::Hardware,
            |d, _| {
                d[0].partitions.clear();
                d.push(machine_with_data("vdb"));
            },
        ),
        (&["more than one partition", "/dev/vda6", "/dev/vda7", "e2label"], Class::Hardware, |d, _| {
            d[0].partitions[3].signatures = vec![ext4("HARV_LH_DEFAULT")];
        }),
        (&["/dev/vda has no GUID partition table"], Class::Hardware, |d, _| d[0].partitions[2].entry = None),
        (&["it overlaps with /dev/vda7"], Class::Hardware, |d, _| {
            d[0].partitions[3].start = ByteSize::gib(31);
        }),
        (
            &["begins at 8 GiB", "need 8.9 GiB before it", "install.data_disk for this one"],
            Class::Hardware,
            |d, _| {
                d[0].partitions[1].size = ByteSize::gib(1);
                d[0].partitions[2].start = ByteSize::gib(8);
            },
        ),
        (&["a persistent partition of 14 GiB is larger", "leave it out"], Class::Invalid, |_, c| {
            c.install.persistent_partition_size = Some(ByteSize::gib(14));
        }),
        (&["is not empty, and install.wipe is none"], Class::Hardware, |_, c| c.install.wipe = Wipe::None),
    ];
    for (told, class, change) in cases {
        let (mut disks, mut config) = (vec![machine_with_data("vda")], config());
        change(&mut disks, &mut config);
        let (found, text) = refusal(&config, &disks);
        assert_eq!(found, class, "{text}");
        assert!(told.iter().all(|words| text.contains(words)), "{told:?}: {text}");
    }
}

#[test]
fn a_witness_has_nothing_to_keep() {
    let mut config = config();
    config.install.mode = Mode::Join;
    config.install.role = Role::Witness;
    let (class, text) = refusal(&config, &[machine_with_data("vda")]);
    assert!(class == Class::Invalid && text.contains("install.keep"), "{text}");
}
