//! Plans that concern more than one disk.

use super::*;
use model::config::Role;
use model::config::{Wipe, WipeFailure};

/// Disks `vda` for the system, `vdb` and `vdc`, all with content.
fn disks() -> Vec<Disk> {
    ["vda", "vdb", "vdc"]
        .map(|name| {
            let mut disk = disk(name, ByteSize::gib(16));
            disk.partitions = vec![found(name, 1, Some("home"), None), found(name, 2, None, Some("photos"))];
            disk
        })
        .to_vec()
}

fn config() -> InstallConfig {
    let mut config = trial();
    config.install.device = "/dev/vda".parse().ok();
    config
}

fn with_data() -> InstallConfig {
    let mut config = config();
    config.install.data_disk = "/dev/vdb".parse().ok();
    config
}

fn listed(paths: &[&str]) -> InstallConfig {
    let mut config = config();
    config.install.wipe_disks_list = paths.iter().map(|path| path.parse().unwrap()).collect();
    config
}

/// The kernel's names of the disks that are wiped.
fn wiped(plan: &Plan) -> Vec<&str> {
    plan.wiped.iter().map(|wiped| wiped.disk.name.as_str()).collect()
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().map(Step::id).collect()
}

#[test]
fn the_texts_name_every_disk_with_what_is_lost() {
    golden("data-disk.txt", &try_plan(&with_data(), &disks()).unwrap().to_string());
    let mut config = listed(&["/dev/disk/by-id/virtio-serial-vdb", "/dev/vdz"]);
    config.install.wipe_all_disks = true;
    let mut disks = disks();
    disks[2].partitions.push(found("vdc", 3, None, Some("COS_OEM")));
    golden("wipes.txt", &try_plan(&config, &disks).unwrap().to_string());
}

#[test]
fn a_data_disk_has_the_data_and_the_system_disk_has_the_rest_for_what_lasts() {
    let plan = try_plan(&with_data(), &disks()).unwrap();
    let names: Vec<_> = plan.partitions.iter().map(|partition| partition.name).collect();
    assert!(!names.contains(&PartitionName::Data) && names.len() == 7);
    let persistent = plan.partition(PartitionName::Persistent).unwrap();
    assert!(plan.disk.size.saturating_sub(persistent.end()) <= ByteSize::mib(1), "{persistent:?}");
    let data = plan.data_disk.as_ref().unwrap();
    assert_eq!((data.disk.name.as_str(), data.erased.len()), ("vdb", 2));
    let [only] = &data.partitions[..] else { panic!("one partition, not {:?}", data.partitions) };
    assert_eq!((only.number, only.name, only.start), (1, PartitionName::Data, layout::ALIGNMENT));
    assert!(data.disk.size.saturating_sub(only.end()) <= ByteSize::mib(1), "{only:?}");
    // Nothing on the two disks has the same identity, and the same disk GUID gives the same again.
    assert_ne!(data.disk_guid, plan.disk_guid);
    assert_eq!(try_plan(&with_data(), &disks()).unwrap().data_disk.unwrap().disk_guid, data.disk_guid);
    let single = try_plan(&config(), &disks()).unwrap();
    assert_ne!(only.uuid, single.partition(PartitionName::Data).unwrap().uuid);
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["data_disk"]["disk"]["path"], "/dev/vdb");
    assert_eq!(json["data_disk"]["erased"][1]["signatures"][0]["label"], "photos");
}

#[test]
fn the_kernel_is_told_of_the_data_partition_on_its_own_disk() {
    let plan = try_plan(&with_data(), &disks()).unwrap();
    let uuid = plan.data_disk.as_ref().unwrap().partitions[0].uuid;
    let texts = plan.steps.iter().filter_map(|step| match step {
        Step::Esp(content) => Some(&content.files),
        _ => None,
    });
    let words = texts.flatten().find(|file| file.path == "grub/node.cfg").unwrap();
    let PlannedContent::Text(text) = &words.content else { panic!("node.cfg is text") };
    assert_eq!(text.matches(&format!("nqrust.data=PARTUUID={uuid}")).count(), 1, "{text}");
}

#[test]
fn the_steps_for_other_disks_stand_where_they_do_least_harm() {
    let mut config = with_data();
    config.install.wipe_disks_list = vec!["/dev/vdc".parse().unwrap()];
    let plan = try_plan(&config, &disks()).unwrap();
    assert_eq!(ids(&plan)[..5], ["verify-medium", "wipe-disks", "wipe", "partition", "data-disk"]);
    let plain = try_plan(&super::trial(), &disks()[..1]).unwrap();
    assert!(!ids(&plain).contains(&"wipe-disks") && !ids(&plain).contains(&"data-disk"));
}

#[test]
fn a_data_disk_that_is_the_system_disk_is_as_if_not_given() {
    let mut config = config();
    config.install.data_disk = "/dev/disk/by-id/virtio-serial-vda".parse().ok();
    let plan = try_plan(&config, &disks()).unwrap();
    assert!(plan.data_disk.is_none());
    assert_eq!(
        plan.warnings,
        ["install.data_disk is /dev/vda, the system's disk: data gets a partition on it."]
    );
    assert!(plan.partitions.iter().any(|partition| partition.name == PartitionName::Data));
    // A witness refuses even that: the user expects data there.
    (config.install.mode, config.install.role) = (Mode::Join, Role::Witness);
    let (class, text) = refusal(&config, &disks());
    assert!(class == Class::Invalid && text.contains("install.data_disk"), "{text}");
}

#[test]
fn a_data_disk_leaves_the_other_disk_to_the_system() {
    let mut config = with_data();
    config.install.device = None;
    let mut disks = disks();
    let (class, text) = refusal(&config, &disks);
    assert!(class == Class::Hardware && text.contains("2 disks match"), "{text}");
    disks.truncate(2);
    let plan = try_plan(&config, &disks).unwrap();
    assert_eq!((plan.disk.name.as_str(), plan.data_disk.unwrap().disk.name.as_str()), ("vda", "vdb"));
    // The only disk there is holds both.
    let plan = try_plan(&config, &disks[1..]).unwrap();
    assert!(plan.disk.name == "vdb" && plan.data_disk.is_none());
}

#[test]
fn a_size_of_the_persistent_partition_is_for_one_disk() {
    let mut config = with_data();
    config.install.persistent_partition_size = Some(ByteSize::gib(3));
    let plan = try_plan(&config, &disks()).unwrap();
    assert!(plan.partition(PartitionName::Persistent).unwrap().size > ByteSize::gib(9));
    assert!(plan.warnings[0].contains("install.persistent_partition_size has no effect"));
}

#[test]
fn a_data_disk_has_a_least_size_by_profile() {
    use model::config::Profile::{Production, Trial};
    for (profile, least) in [(Production, ByteSize::gib(50)), (Trial, ByteSize::gib(1))] {
        let mut config = with_data();
        config.install.profile = profile;
        let mut disks = disks();
        // Without data on it, a disk of 180 GiB is large enough.
        disks[0].size = ByteSize::gib(180);
        disks[1].size = least;
        assert!(try_plan(&config, &disks).is_ok(), "{profile:?}");
        disks[1].size = least.saturating_sub(ByteSize::bytes(512));
        let (class, text) = refusal(&config, &disks);
        assert!(class == Class::Hardware && text.contains("/dev/vdb"), "{text}");
        assert!(text.contains("larger disk with install.data_disk"), "{text}");
    }
}

#[test]
fn disks_of_the_list_are_found_by_links_and_once_each() {
    let plan = try_plan(&listed(&["/dev/disk/by-id/virtio-serial-vdc", "/dev/vdc"]), &disks()).unwrap();
    assert_eq!(wiped(&plan), ["vdc"]);
    assert_eq!(plan.wiped[0].erased.len(), 2);
    assert!(plan.warnings.is_empty());
    let plan = try_plan(&listed(&["/dev/vdz"]), &disks()).unwrap();
    assert!(plan.wiped.is_empty() && !ids(&plan).contains(&"wipe-disks"));
    assert!(plan.warnings[0].contains("there is no disk /dev/vdz"), "{:?}", plan.warnings);
}

#[test]
fn a_listed_disk_that_must_stay_is_refused_with_the_reason() {
    type Change = fn(&mut Disk);
    let cases: [(&str, Class, &str, Change); 7] = [
        ("/dev/vdc1", Class::Hardware, "is a partition, not a disk", |_| ()),
        (
            "/dev/disk/by-id/virtio-serial-vdc-part2",
            Class::Hardware,
            "install.wipe_disks_list to the whole disk, /dev/vdc",
            |_| (),
        ),
        ("/dev/vdc", Class::Hardware, "holds the medium", |disk| disk.boot_medium = true),
        ("/dev/vdc", Class::Hardware, "is read-only", |disk| disk.read_only = true),
        ("/dev/vdc", Class::Hardware, "in use: /dev/vdc is mounted at /srv", |disk| {
            disk.holders = vec![mounted("/dev/vdc", "/srv")];
        }),
        ("/dev/vda", Class::Invalid, "names /dev/vda, a disk of the install", |_| ()),
        ("/dev/disk/by-id/virtio-serial-vdb", Class::Invalid, "names /dev/vdb, a disk", |_| ()),
    ];
    for (path, class, told, change) in cases {
        let mut config = listed(&[path]);
        config.install.data_disk = "/dev/vdb".parse().ok();
        let mut disks = disks();
        change(&mut disks[2]);
        let (found, text) = refusal(&config, &disks);
        assert!(found == class && text.contains(told), "{path}: {text}");
        // A wrong list stays an error with `warn` too; a disk that cannot be wiped does not.
        config.install.wipe_failure = WipeFailure::Warn;
        match told.contains("in use") || told.contains("read-only") {
            true => {
                let plan = try_plan(&config, &disks).unwrap();
                assert!(plan.wiped.is_empty(), "{told}");
                assert!(
                    plan.warnings[0].contains("/dev/vdc stays as it is: /dev/vdc is"),
                    "{:?}",
                    plan.warnings
                );
            }
            false => assert_eq!(refusal(&config, &disks).0, class, "{told}"),
        }
    }
}

#[test]
fn all_disks_means_those_with_a_system_of_this_product_or_its_predecessor() {
    let node: Vec<_> = ["bios", "esp", "config", "root-a", "root-b", "recovery", "persistent", "data"]
        .iter()
        .zip(1..)
        .map(|(name, number)| found("vdb", number, Some(name), None))
        .collect();
    let cases = [
        (vec![], false),
        (vec![found("vdb", 1, Some("home"), Some("photos"))], false),
        // Common names.
        (vec![found("vdb", 1, Some("data"), None), found("vdb", 2, Some("recovery"), Some("data"))], false),
        (node[..7].to_vec(), true),
        (node[2..6].to_vec(), false),
        (vec![found("vdb", 1, Some("config"), Some("NQ_CONFIG"))], true),
        (vec![found("vdb", 1, Some("data"), Some("HARV_LH_DEFAULT"))], true),
        (vec![found("vdb", 2, Some("oem"), Some("COS_OEM"))], true),
        (vec![found("vdb", 4, Some("COS_STATE"), None)], true),
        (vec![found("vdb", 4, Some("cos_state"), Some("HARV"))], false),
    ];
    for (partitions, expected) in cases {
        let mut config = config();
        config.install.wipe_all_disks = true;
        let mut disks = disks();
        // The install's own disks are not "other", whatever is on them.
        disks[0].partitions.clone_from(&node);
        disks[1].partitions.clone_from(&partitions);
        let plan = try_plan(&config, &disks).unwrap();
        assert_eq!(wiped(&plan) == ["vdb"], expected, "{partitions:?}");
        config.install.wipe_all_disks = false;
        assert!(try_plan(&config, &disks).unwrap().wiped.is_empty());
    }
}

#[test]
fn a_file_system_on_a_whole_disk_is_seen_too() {
    let mut config = config();
    config.install.wipe_all_disks = true;
    let mut disks = disks();
    disks[1].partitions.clear();
    disks[1].signatures = vec![ext4("HARV_LH_DEFAULT")];
    assert_eq!(wiped(&try_plan(&config, &disks).unwrap()), ["vdb"]);
    config.install.device = "/dev/vdb".parse().ok();
    (config.install.wipe_all_disks, config.install.wipe) = (false, Wipe::None);
    let (class, text) = refusal(&config, &disks);
    assert!(
        class == Class::Hardware && text.contains(r#"/dev/vdb is not empty, and install.wipe is none"#),
        "{text}"
    );
}

#[test]
fn all_disks_leaves_out_the_boot_medium_and_what_is_in_use() {
    type Change = fn(&mut Disk);
    let cases: [(Change, Option<&str>); 6] = [
        (|disk| disk.boot_medium = true, None),
        (
            |disk| disk.holders = vec![mounted("/dev/vdb", "/srv")],
            Some("/dev/vdb stays, it is in use: /dev/vdb is mounted"),
        ),
        (|disk| disk.read_only = true, Some("/dev/vdb stays, it is read-only")),
        (|disk| disk.removable = true, Some("/dev/vdb stays, it is removable")),
        (
            |disk| (disk.wwn, disk.serial) = (Some("naa.1".into()), Some("S".into())),
            Some("/dev/vdb stays, it is one of several paths"),
        ),
        // The predecessor's medium.
        (
            |disk| {
                disk.partitions.clear();
                disk.signatures = vec![Signature { kind: SignatureKind::Iso9660, ..ext4("COS_LIVE") }];
            },
            None,
        ),
    ];
    for (change, told) in cases {
        let mut config = config();
        config.install.wipe_all_disks = true;
        let mut disks = disks();
        disks[1].partitions.push(found("vdb", 3, None, Some("COS_OEM")));
        (disks[2].wwn, disks[2].serial) = (Some("naa.1".into()), Some("S".into()));
        change(&mut disks[1]);
        let plan = try_plan(&config, &disks).unwrap();
        assert!(plan.wiped.is_empty());
        assert_eq!(plan.warnings.len(), usize::from(told.is_some()));
        assert!(told.is_none_or(|told| plan.warnings[0].contains(told)), "{:?}", plan.warnings);
    }
}

#[test]
fn wipe_none_spares_what_is_on_the_chosen_disks() {
    let mut config = with_data();
    config.install.wipe = Wipe::None;
    let mut disks = disks();
    for (path, told) in
        [("/dev/vda", "/dev/vda1  1 GiB  home; /dev/vda2  1 GiB  (ext4 \"photos\")"), ("/dev/vdb", "home")]
    {
        let (class, text) = refusal(&config, &disks);
        assert_eq!(class, Class::Hardware, "{text}");
        assert!(text.contains(&format!("{path} is not empty")) && text.contains(told), "{text}");
        assert!(text.contains("set install.wipe to selected"), "{text}");
        disks.iter_mut().find(|disk| disk.path.to_str() == Some(path)).unwrap().partitions.clear();
    }
    // The content of the third disk is not in danger.
    assert!(try_plan(&config, &disks).is_ok());
    for key in ["install.wipe_disks_list", "install.wipe_all_disks"] {
        let mut config = config.clone();
        match key {
            "install.wipe_all_disks" => config.install.wipe_all_disks = true,
            _ => config.install.wipe_disks_list = vec!["/dev/vdc".parse().unwrap()],
        }
        let (class, text) = refusal(&config, &disks);
        assert!(class == Class::Invalid && text.contains(&format!("Leave out {key}")), "{text}");
    }
}
