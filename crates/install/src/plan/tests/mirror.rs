//! Plans of a system on two disks.

use proptest::prelude::*;

use super::*;

fn disks(first: ByteSize, second: ByteSize) -> Vec<Disk> {
    vec![disk("vda", first), disk("vdb", second), disk("vdc", ByteSize::gib(16))]
}

fn config() -> InstallConfig {
    let mut config = trial();
    config.install.device = "/dev/vda".parse().ok();
    config.install.mirror = "/dev/disk/by-id/virtio-serial-vdb".parse().ok();
    config
}

fn planned(config: &InstallConfig) -> Plan {
    try_plan(config, &disks(ByteSize::gib(16), ByteSize::gib(20))).unwrap()
}

fn node_words(plan: &Plan) -> String {
    let files = plan.steps.iter().filter_map(|step| match step {
        Step::Esp(content) => Some(&content.files),
        _ => None,
    });
    let words = files.flatten().find(|file| file.path == "grub/node.cfg").unwrap();
    let PlannedContent::Text(text) = &words.content else { panic!("node.cfg is text") };
    text.clone()
}

#[test]
fn the_text_shows_both_disks_and_the_arrays() {
    let mut disks = disks(ByteSize::gib(16), ByteSize::gib(20));
    disks[1].partitions.push(found("vdb", 1, Some("home"), None));
    golden("mirror.txt", &try_plan(&config(), &disks).unwrap().to_string());
}

#[test]
fn a_plan_for_review_has_its_warnings_first_and_no_identifiers() {
    let mut plan = planned(&config());
    plan.warnings = vec!["this disk is slow".into()];
    let (whole, review) = (plan.to_string(), crate::plan::PlanReview(&plan).to_string());
    let identifiers: Vec<_> = plan.partitions.iter().map(|partition| partition.uuid.to_string()).collect();
    assert!(identifiers.iter().all(|identifier| whole.contains(identifier) && !review.contains(identifier)));
    assert!(review.find("this disk is slow").unwrap() < review.find("  disk ").unwrap(), "{review}");
    // Nothing else is left out.
    let names = |text: &str| text.lines().filter(|line| line.starts_with("  ")).count();
    let tables = whole.lines().filter(|line| line.starts_with("  table")).count();
    assert_eq!(names(&whole) - tables, names(&review));
}

#[test]
fn the_kernel_is_told_of_arrays_and_not_of_partitions() {
    let plan = planned(&config());
    let text = node_words(&plan);
    let arrays = &plan.mirror.as_ref().unwrap().arrays;
    let id = |name| arrays.iter().find(|array| array.partition == name).unwrap().id();
    for (key, name) in [
        ("nq_root", PartitionName::RootA),
        ("nq_root", PartitionName::RootB),
        ("nq_root", PartitionName::Recovery),
        ("nqrust.config", PartitionName::Config),
        ("nqrust.persistent", PartitionName::Persistent),
        ("nqrust.data", PartitionName::Data),
    ] {
        let word = format!(" {key}=/dev/disk/by-id/md-uuid-{}", id(name));
        assert!(text.contains(&word), "{word}: {text}");
    }
    for array in arrays {
        assert_eq!(text.matches(&format!(" rd.md.uuid={} ", array.id())).count(), 1, "{text}");
    }
    assert!(!text.contains("PARTUUID") && text.contains(" rd.retry=60 "), "{text}");
}

#[test]
fn data_on_a_disk_of_its_own_is_not_mirrored() {
    let mut config = config();
    config.install.data_disk = "/dev/vdc".parse().ok();
    let plan = planned(&config);
    let data = plan.data_disk.as_ref().unwrap();
    let arrays = &plan.mirror.as_ref().unwrap().arrays;
    assert!(arrays.iter().all(|array| array.partition != PartitionName::Data) && arrays.len() == 5);
    assert!(node_words(&plan).contains(&format!("nqrust.data=PARTUUID={}", data.partitions[0].uuid)));
}

#[test]
fn a_disk_that_cannot_be_the_mirror_is_refused_with_the_reason() {
    type Change = fn(&mut InstallConfig, &mut Vec<Disk>);
    let cases: [(&str, Class, Change); 8] = [
        ("install.mirror is /dev/vda, the disk of install.device", Class::Invalid, |config, _| {
            config.install.mirror = "/dev/disk/by-id/virtio-serial-vda".parse().ok();
        }),
        ("install.mirror is /dev/vdb, the disk of install.data_disk", Class::Invalid, |config, _| {
            config.install.data_disk = "/dev/vdb".parse().ok();
        }),
        ("install.keep and install.mirror are set", Class::Invalid, |config, _| {
            config.install.keep = vec![model::config::Keep::Data];
        }),
        ("install.mirror is set and install.device is not", Class::Invalid, |config, disks| {
            config.install.device = None;
            disks.remove(2);
            disks.remove(1);
            config.install.mirror = "/dev/vda".parse().ok();
        }),
        ("/dev/vda has sectors of 512 bytes and /dev/vdb of 4096", Class::Hardware, |_, disks| {
            disks[1].logical_sector = 4096;
        }),
        ("has 8 GiB, and 10 GiB are needed", Class::Hardware, |_, disks| disks[1].size = ByteSize::gib(8)),
        ("there is no disk /dev/vdz", Class::Hardware, |config, _| {
            config.install.mirror = "/dev/vdz".parse().ok();
        }),
        ("/dev/vdb holds the medium", Class::Hardware, |_, disks| disks[1].boot_medium = true),
    ];
    for (told, class, change) in cases {
        let (mut config, mut disks) = (config(), disks(ByteSize::gib(16), ByteSize::gib(16)));
        change(&mut config, &mut disks);
        let (found, text) = refusal(&config, &disks);
        assert!(found == class && text.contains(told), "{told}: {text}");
    }
}

#[test]
fn wipe_none_spares_the_mirror_too() {
    let mut config = config();
    config.install.wipe = model::config::Wipe::None;
    let mut disks = disks(ByteSize::gib(16), ByteSize::gib(16));
    disks[1].partitions.push(found("vdb", 1, Some("home"), None));
    let (class, text) = refusal(&config, &disks);
    assert!(class == Class::Hardware && text.contains("/dev/vdb"), "{text}");
}

#[test]
fn a_smaller_disk_of_the_same_nominal_size_can_replace_one_of_a_new_mirror() {
    let size = ByteSize::gib(16);
    let plan = try_plan(&config(), &disks(size, size)).unwrap();
    let end = plan.partitions.last().unwrap().end();
    let needed = crate::plan::layout::disk_of(end, crate::plan::layout::SectorSize::B512);
    assert!(needed <= size - ByteSize::mib(100), "{needed}");
    // Without a mirror nothing is left free.
    let mut alone = config();
    alone.install.mirror = None;
    let plan = try_plan(&alone, &disks(size, size)).unwrap();
    assert!(size - plan.partitions.last().unwrap().end() <= ByteSize::mib(2));
}

#[test]
fn a_slot_ends_before_what_is_behind_its_array() {
    let plan = planned(&config());
    for array in &plan.mirror.as_ref().unwrap().arrays {
        let partition = plan.partition(array.partition).unwrap();
        let end = SlotGeometry::of(partition).boot + BOOT_VOLUME_BYTES;
        let slots = [PartitionName::RootA, PartitionName::RootB, PartitionName::Recovery];
        if slots.contains(&array.partition) {
            assert!(end <= partition.start + array.size, "{}", array.partition.as_str());
        }
    }
}

proptest! {
    #[test]
    fn both_disks_have_the_same_places_whichever_is_smaller(
        first in (10_u64 << 30)..(4 << 40),
        second in (10_u64 << 30)..(4 << 40),
        four_k: bool,
    ) {
        let sector = if four_k { 4096 } else { 512 };
        let whole = |size: u64| ByteSize::bytes(size / sector * sector);
        let mut disks = disks(whole(first), whole(second));
        disks.iter_mut().for_each(|disk| disk.logical_sector = u32::try_from(sector).unwrap());
        let plan = try_plan(&config(), &disks).unwrap();
        let mirror = plan.mirror.as_ref().unwrap();
        let places = |partitions: &[Partition]| {
            partitions.iter().map(|p| (p.number, p.name, p.start, p.size)).collect::<Vec<_>>()
        };
        prop_assert_eq!(places(&plan.partitions), places(&mirror.partitions));
        let table = (16 << 10) + sector;
        let end = plan.partitions.last().unwrap().end().get();
        prop_assert!(end + table <= whole(first.min(second)).get());
        // Nothing on the two disks, nor over both, has the identity of anything else.
        let mut ids: Vec<_> = plan.partitions.iter().chain(&mirror.partitions).map(|p| p.uuid).collect();
        ids.extend(mirror.arrays.iter().map(|array| array.uuid));
        ids.extend([plan.disk_guid, mirror.disk_guid]);
        let count = ids.len();
        ids.sort();
        ids.dedup();
        prop_assert_eq!(ids.len(), count);
        // The superblock and the bitmap have room behind each array, and nothing but `bios` and `esp` is without one.
        prop_assert_eq!(mirror.arrays.len() + 2, plan.partitions.len());
        for array in &mirror.arrays {
            let member = plan.partition(array.partition).unwrap();
            prop_assert_eq!(member.size.get() - array.size.get(), 1 << 20);
        }
    }
}
