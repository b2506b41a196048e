//! Plans for inventories of servers, as `installer inventory` prints them.

use super::*;
use model::config::Role;

fn recorded(text: &str) -> Inventory {
    serde_json::from_str(text).unwrap()
}

/// Two NVMe disks, the second with a system of the predecessor; the medium in a virtual optical drive.
fn two_nvme() -> Inventory {
    recorded(testing::inventories::TWO_NVME)
}

/// Four SAS disks, and two volumes of a storage array with two paths each, of which only one is held by multipathd.
fn sas_multipath() -> Inventory {
    recorded(testing::inventories::SAS_MULTIPATH)
}

/// Two disks in an active RAID, two volumes of a controller without serial numbers, an SSD with a damaged table, and the stick
/// with the medium.
fn old_raid() -> Inventory {
    recorded(testing::inventories::OLD_RAID)
}

/// A production install on the disk that `selector` selects.
fn on(selector: serde_json::Value) -> InstallConfig {
    let mut config = InstallConfig::default();
    config.install.device = serde_json::from_value(selector).unwrap();
    config
}

fn planned(config: &InstallConfig, inventory: &Inventory) -> Plan {
    plan(config, inventory, &release().into(), GUID).unwrap()
}

fn refused(config: &InstallConfig, inventory: &Inventory) -> String {
    render(&plan(config, inventory, &release().into(), GUID).unwrap_err())
}

#[test]
fn of_two_nvme_disks_neither_is_taken_unasked_and_each_by_name() {
    let text = refused(&on(serde_json::Value::Null), &two_nvme());
    assert!(text.contains("2 disks match") && !text.contains("sr0"), "{text}");
    assert!(text.contains("For example install.device: {serial: S64FNE0R801234}."), "{text}");
    for (selector, name) in [
        (serde_json::json!("/dev/disk/by-path/pci-0000:01:00.0-nvme-1"), "nvme0n1"),
        (serde_json::json!({ "serial": "S64FNE0R805678" }), "nvme1n1"),
        (serde_json::json!({ "wwn": "0x36344630528056780025384500000001" }), "nvme1n1"),
    ] {
        assert_eq!(planned(&on(selector), &two_nvme()).disk.name, name);
    }
    let mut config = on(serde_json::json!({ "serial": "S64FNE0R801234" }));
    config.install.wipe_all_disks = true;
    let text = planned(&config, &two_nvme()).to_string();
    for lost in [
        "/dev/nvme1n1  partition table (GPT)",
        "/dev/nvme1n1p5  150 GiB  persistent  (ext4 \"COS_PERSISTENT\")",
    ] {
        assert!(text.contains(&format!("  lost    {lost}\n")), "{text}");
    }
}

#[test]
fn a_volume_of_several_paths_is_installed_on_by_its_map_and_never_by_a_path() {
    let plan =
        planned(&on(serde_json::json!({ "model": "MSA*", "by_id": "dm-name-mpatha" })), &sas_multipath());
    assert_eq!(plan.disk.path, std::path::Path::new("/dev/mapper/mpatha"));
    assert!(plan.to_string().contains("  lost    /dev/mapper/mpatha  VMFS \"datastore1\"\n"), "{plan}");
    // A path of the multipath map selects the map; paths outside a map are refused.
    assert_eq!(planned(&on(serde_json::json!("/dev/sdf")), &sas_multipath()).disk.name, "dm-0");
    let text = refused(&on(serde_json::json!("/dev/sdg")), &sas_multipath());
    assert!(text.contains("/dev/sdg, /dev/sdh are paths to one disk"), "{text}");
}

#[test]
fn a_data_disk_among_disks_of_one_model_needs_what_is_its_own() {
    let mut config = on(serde_json::json!({ "wwn": "0x5000c500c1a0b1c3" }));
    config.install.data_disk = serde_json::from_value(serde_json::json!({ "model": "ST2400*" })).unwrap();
    let text = refused(&config, &sas_multipath());
    assert!(text.contains("4 disks meet the clauses of install.data_disk"), "{text}");
    assert!(text.contains("such as serial: WBN0A1B2."), "{text}");
    config.install.data_disk = serde_json::from_value(serde_json::json!({ "serial": "WBN0A1D1" })).unwrap();
    assert_eq!(planned(&config, &sas_multipath()).data_disk.unwrap().disk.name, "sdd");
}

#[test]
fn an_old_array_that_came_up_is_taken_down_with_what_rests_on_it_where_all_its_disks_go() {
    let mut config = on(serde_json::json!("/dev/sda"));
    let text = refused(&config, &old_raid());
    assert!(text.contains("/dev/sda is in use: /dev/md127 is part of the LVM volume vg0-root"), "{text}");
    assert!(text.contains("it is also on /dev/sdb, which the install does not erase"), "{text}");
    config.install.wipe_disks_list = vec!["/dev/sdb".parse().unwrap()];
    let text = planned(&config, &old_raid()).to_string();
    let told = "Taken down\n  vg0-root (LVM) on /dev/md127\n  /dev/md127 (RAID) on /dev/sda2\n";
    assert!(text.contains(told), "{text}");
    // Volumes of the controller differ by nothing but their port.
    let text = refused(&on(serde_json::json!({ "model": "LOGICAL*" })), &old_raid());
    assert!(text.contains("member of a controller's RAID (DDF)"), "{text}");
    assert!(text.contains("such as by_path: pci-0000:05:00.0-scsi-0:1:0:0."), "{text}");
    let text = refused(&on(serde_json::json!({ "transport": "usb" })), &old_raid());
    assert!(text.contains("/dev/sdf: it holds the medium that this system runs from"), "{text}");
}

#[test]
fn a_damaged_table_is_data_that_somebody_may_miss() {
    let mut config = on(serde_json::json!({ "serial": "S3YJNB0K123456A" }));
    // A witness needs less room.
    (config.install.mode, config.install.role) = (Mode::Join, Role::Witness);
    let plan = planned(&config, &old_raid());
    assert!(
        plan.to_string().contains("lost    /dev/sde  partition table (GPT, first copy damaged)"),
        "{plan}"
    );
    config.install.wipe = model::config::Wipe::None;
    assert!(refused(&config, &old_raid()).contains("/dev/sde is not empty"));
}
