//! Disks that firmware keeps in a RAID set.

use super::*;

fn machine(kind: SignatureKind) -> Vec<Disk> {
    let member = Signature { kind, label: Some("Volume0".into()), uuid: None, offset: 512 };
    ["sda", "sdb", "sdc"]
        .map(|name| {
            let signatures = if name == "sdc" { vec![] } else { vec![member.clone()] };
            Disk { signatures, ..disk(name, ByteSize::gib(16)) }
        })
        .to_vec()
}

fn on(device: &str) -> InstallConfig {
    let mut config = trial();
    config.install.device = device.parse().ok();
    config
}

#[test]
fn half_of_a_firmware_mirror_is_not_written_without_the_other() {
    for (kind, whose) in [
        (SignatureKind::ImsmMember, "of Intel's firmware (VROC or RST)"),
        (SignatureKind::DdfMember, "of a RAID controller (DDF)"),
    ] {
        let disks = machine(kind);
        let mut data = on("/dev/sdc");
        data.install.data_disk = "/dev/sda".parse().ok();
        let mut wiped = on("/dev/sdc");
        wiped.install.wipe_disks_list = vec!["/dev/sda".parse().unwrap()];
        for config in [on("/dev/sda"), data, wiped] {
            let (class, text) = refusal(&config, &disks);
            assert_eq!(class, Class::Hardware);
            let what =
                format!("/dev/sda is half of the RAID set \"Volume0\" {whose}; /dev/sdb is not erased");
            assert!(text.contains(&what), "{text}");
            assert!(text.contains("Delete the set in the firmware set-up"), "{text}");
        }
        let mut both = on("/dev/sda");
        both.install.mirror = "/dev/sdb".parse().ok();
        assert!(try_plan(&both, &disks).is_ok());
        let mut listed = on("/dev/sda");
        listed.install.wipe_disks_list = vec!["/dev/sdb".parse().unwrap()];
        assert!(try_plan(&listed, &disks).is_ok());
        assert!(try_plan(&on("/dev/sdc"), &disks).unwrap().warnings.is_empty());
        // A member that is alone here is named in a warning.
        let plan = try_plan(&on("/dev/sda"), &disks[..1]).unwrap();
        assert!(
            plan.warnings[0].contains("whose other members are not in this machine"),
            "{:?}",
            plan.warnings
        );
    }
}

#[test]
fn the_name_of_an_array_is_no_disk_and_its_disks_are_told() {
    let disks = machine(SignatureKind::ImsmMember);
    for path in ["/dev/md126", "/dev/md/Volume0_0", "/dev/md_d0", "/dev/disk/by-id/md-uuid-1"] {
        let (class, text) = refusal(&on(path), &disks);
        let what = format!(
            "{path} is the RAID set \"Volume0\" of Intel's firmware (VROC or RST) on /dev/sda and /dev/sdb"
        );
        assert!(class == Class::Hardware && text.contains(&what), "{text}");
        assert!(text.contains("Set install.device to /dev/sda and install.mirror to /dev/sdb"), "{text}");
    }
    let (_, text) = refusal(&on("/dev/md0"), &disks[2..]);
    assert!(text.contains("/dev/md0 is a Linux RAID array, not a disk"), "{text}");
    assert!(text.contains("Set install.device to a disk. Disks that fit: /dev/sdc"), "{text}");
    let (_, text) = refusal(&on("/dev/mdx"), &disks);
    assert!(text.contains("there is no disk /dev/mdx"), "{text}");
}
