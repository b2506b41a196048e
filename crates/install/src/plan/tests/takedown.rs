//! Plans for disks that are held by leftovers of earlier systems.

use super::*;
use machine::inventory::{FoundEntry, Holder, HolderKind};
use model::config::{Keep, Wipe};

fn holder(kind: HolderKind, on: &str, name: Option<&str>, device: Option<&str>) -> Holder {
    Holder { on: on.into(), kind, name: name.map(Into::into), device: device.map(Into::into) }
}

/// An array on `vda` and `vdb`, with a volume group on it, of which one volume is swap.
fn stack(disk: &str) -> Vec<Holder> {
    vec![
        holder(HolderKind::Md, &format!("/dev/{disk}2"), None, Some("/dev/md127")),
        holder(HolderKind::Lvm, "/dev/md127", Some("vg0-swap"), Some("/dev/dm-0")),
        holder(HolderKind::Swap, "/dev/dm-0", None, None),
    ]
}

fn disks() -> Vec<Disk> {
    let disk = |name: &str| Disk { holders: stack(name), ..disk(name, ByteSize::gib(16)) };
    vec![disk("vda"), disk("vdb")]
}

fn config() -> InstallConfig {
    let mut config = trial();
    config.install.device = "/dev/vda".parse().ok();
    config.install.wipe_disks_list = vec!["/dev/vdb".parse().unwrap()];
    config
}

#[test]
fn what_holds_the_disks_is_taken_down_from_the_top_and_once() {
    let plan = try_plan(&config(), &disks()).unwrap();
    let kinds: Vec<_> = plan.taken_down.iter().map(|holder| holder.kind).collect();
    assert_eq!(kinds, [HolderKind::Swap, HolderKind::Lvm, HolderKind::Md]);
    let text = plan.to_string();
    let told =
        "Taken down\n  swap on /dev/dm-0\n  vg0-swap (LVM) on /dev/md127\n  /dev/md127 (RAID) on /dev/vda2\n";
    assert!(text.contains(told), "{text}");
    assert!(
        !try_plan(&trial(), &[disk("vda", ByteSize::gib(16))]).unwrap().to_string().contains("Taken down")
    );
}

#[test]
fn what_cannot_be_taken_down_is_refused_by_name() {
    type Change = fn(&mut Vec<Disk>, &mut InstallConfig);
    let cases: [(&str, Change); 6] = [
        ("and it is also on /dev/vdb, which the install does not erase", |_, c| {
            c.install.wipe_disks_list.clear();
        }),
        ("/dev/dm-0 is mounted at /srv", |d, _| {
            d[0].holders.push(mounted("/dev/dm-0", "/srv"));
        }),
        ("/dev/vda2 is a path of the multipath device mpatha", |d, _| {
            let map = holder(HolderKind::Multipath, "/dev/vda2", Some("mpatha"), Some("/dev/dm-9"));
            d[0].holders.insert(0, map);
        }),
        ("/dev/vda2 is part of the ZFS pool tank", |d, _| {
            d[0].holders.push(holder(HolderKind::Zfs, "/dev/vda2", Some("tank"), None));
        }),
        ("and install.wipe is none", |_, c| {
            c.install.wipe_disks_list.clear();
            c.install.wipe = Wipe::None;
        }),
        ("and its data is to be kept", |d, c| {
            c.install.keep = vec![Keep::Data];
            let entry = FoundEntry { number: 2, kind: PartitionName::Data.type_guid(), uuid: GUID };
            let place = |number| FoundPartition {
                start: ByteSize::gib(10),
                size: ByteSize::gib(4),
                entry: Some(entry),
                ..found("vda", number, Some("data"), Some("HARV_LH_DEFAULT"))
            };
            d[0].partitions = vec![place(2)];
        }),
    ];
    for (told, change) in cases {
        let (mut disks, mut config) = (disks(), config());
        change(&mut disks, &mut config);
        let (class, text) = refusal(&config, &disks);
        assert_eq!(class, Class::Hardware, "{text}");
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[test]
fn a_disk_that_stays_keeps_what_uses_it() {
    let mut config = config();
    config.install.wipe_disks_list.clear();
    config.install.device = "/dev/vdc".parse().ok();
    let mut disks = disks();
    disks.push(disk("vdc", ByteSize::gib(16)));
    assert!(try_plan(&config, &disks).unwrap().taken_down.is_empty());
}
