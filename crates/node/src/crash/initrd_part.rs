//! What of a slot's initrd a crash kernel gets: all but the modules that the machine does not use, the firmware that these would load, and
//! large files for the network. Its memory is small, and an initrd for any machine takes most of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use formats::kernel_modules::{is_module, matches, name_of};

/// Directories of modules for devices that a dump does not need: it goes to a disk, and messages go to a screen that firmware has set up
/// and to serial lines.
const NOT_NEEDED: [&str; 6] = [
    "/drivers/net/",
    "/drivers/gpu/",
    "/drivers/infiniband/",
    "/drivers/media/",
    "/net/wireless/",
    "/sound/",
];

/// Files for the network, which a dump does not need, and names of devices for people.
const NOT_NEEDED_FILES: [&str; 4] = [
    "usr/lib/udev/hwdb.bin",
    "usr/sbin/NetworkManager",
    "usr/bin/nmcli",
    "var/lib/dracut/hooks/cmdline/29-parse-livenet.sh",
];

/// Directories of firmware in an initrd.
const FIRMWARE: [&str; 2] = ["usr/lib/firmware/", "lib/firmware/"];

/// Which modules and which firmware a crash kernel gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InitrdPart {
    /// With `_`, as the kernel has them.
    pub(super) modules: BTreeSet<String>,
    /// Names below the directories of firmware, without the ends of packed ones. A few have a `*` in them.
    pub(super) firmware: BTreeSet<String>,
}

impl InitrdPart {
    /// The modules that the running kernel has loaded, by the text of `/proc/modules`, without those for devices that a dump does not
    /// need. `files` are the modules' files in the OS image.
    pub(super) fn of_loaded(modules: &str, files: &BTreeMap<String, PathBuf>) -> Self {
        let lines = modules.lines().map(|line| line.split_whitespace());
        let users: BTreeMap<&str, Vec<&str>> = lines
            .filter_map(|mut words| {
                let (name, users) = (words.next()?, words.nth(2)?);
                Some((name, users.split(',').filter(|user| !matches!(*user, "" | "-")).collect()))
            })
            .collect();
        let is_needed = |name: &&str| {
            let path = files.get(*name).map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
            !NOT_NEEDED.iter().any(|part| path.contains(part))
        };
        // What a needed module uses is needed too, wherever it is.
        let mut needed: BTreeSet<&str> = users.keys().copied().filter(is_needed).collect();
        loop {
            let used = users.iter().filter(|(_, users)| users.iter().any(|user| needed.contains(user)));
            let more: Vec<_> = used.map(|(name, _)| *name).filter(|name| !needed.contains(name)).collect();
            if more.is_empty() {
                break;
            }
            needed.extend(more);
        }
        let modules = needed.into_iter().map(str::to_owned).collect();
        Self { modules, firmware: BTreeSet::new() }
    }

    /// Whether the crash kernel gets the entry of the initrd with this path.
    pub(super) fn has(&self, path: &str) -> bool {
        if is_module(path) {
            return self.modules.contains(&name_of(Path::new(path)));
        }
        if NOT_NEEDED_FILES.contains(&path) {
            return false;
        }
        let Some(name) = FIRMWARE.iter().find_map(|directory| path.strip_prefix(directory)) else {
            return true;
        };
        let plain = [".xz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        self.firmware.iter().any(|wanted| matches(wanted, plain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADED: &str = "\
bnx2i 65536 0 - Live 0x0000000000000000
cnic 81920 1 bnx2i, Live 0x0000000000000000
virtio_net 131072 0 - Live 0x0000000000000000
net_failover 24576 1 virtio_net, Live 0x0000000000000000
virtio_blk 40960 7 - Live 0x0000000000000000
raid1 65536 0 - Live 0x0000000000000000
dm_multipath 65536 0 - Live 0x0000000000000000
scsi_dh_alua 65536 0 - Live 0x0000000000000000
qla2xxx 917504 0 - Live 0x0000000000000000
drm 700000 2 simpledrm,drm_kms_helper, Live 0x0000000000000000
kvm 1000000 1 kvm_intel, Live 0x0000000000000000
";

    fn files() -> BTreeMap<String, PathBuf> {
        let paths = [
            "drivers/scsi/bnx2i/bnx2i.ko",
            "drivers/net/ethernet/broadcom/cnic.ko",
            "drivers/net/virtio_net.ko.xz",
            "drivers/block/virtio_blk.ko",
            "drivers/md/raid1.ko",
            "drivers/scsi/qla2xxx/qla2xxx.ko",
            "drivers/gpu/drm/drm.ko",
        ];
        paths.map(|path| (name_of(Path::new(path)), Path::new("/lib/modules/1/kernel").join(path))).into()
    }

    #[test]
    fn modules_that_run_the_disks_are_taken_and_those_of_cards_only_where_a_disk_needs_them() {
        let part = InitrdPart::of_loaded(LOADED, &files());
        let names: Vec<_> = part.modules.iter().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "bnx2i",
                "cnic",
                "dm_multipath",
                "kvm",
                "net_failover",
                "qla2xxx",
                "raid1",
                "scsi_dh_alua",
                "virtio_blk"
            ]
        );
    }

    #[test]
    fn programs_and_rules_stay_and_what_the_machine_does_not_use_goes() {
        let mut part = InitrdPart::of_loaded(LOADED, &files());
        part.firmware = ["ql2500_fw.bin".to_owned(), "intel/ice/*.pkg".to_owned()].into();
        for (path, kept) in [
            ("usr/bin/makedumpfile", true),
            ("usr/lib/udev/rules.d/60-block.rules", true),
            ("usr/lib/modules/1/modules.dep.bin", true),
            ("usr/lib/modules/1/kernel/drivers/block/virtio_blk.ko.xz", true),
            ("usr/lib/modules/1/kernel/drivers/block/virtio-blk.ko", true),
            ("usr/lib/modules/1/kernel/drivers/scsi/mpt3sas/mpt3sas.ko", false),
            ("usr/lib/firmware/ql2500_fw.bin.xz", true),
            ("lib/firmware/intel/ice/ddp/ice.pkg", true),
            ("usr/lib/firmware/amdgpu/a.bin", false),
            ("usr/lib/udev/hwdb.bin", false),
            ("var/lib/dracut/hooks/cmdline/29-parse-livenet.sh", false),
            ("var/lib/dracut/hooks/cmdline/37-parse-crash.sh", true),
            // A persistent partition on an array or a map needs these.
            ("usr/sbin/mdadm", true),
            ("usr/sbin/multipathd", true),
            ("usr/lib/nqrust/multipath/60-multipath.rules", true),
            ("usr/lib/modules/1/kernel/drivers/md/raid1.ko", true),
        ] {
            assert_eq!(part.has(path), kept, "{path}");
        }
    }
}
