//! Keys that other versions, or the product that this one succeeds, know and that are refused here, with the reason.

/// The dotted path of a key, and what to tell who uses it.
const RETIRED: &[(&str, &str)] = &[
    ("runtime_version", "versions are those of the image; choose them in the image definition"),
    ("rancher_version", "versions are those of the image; choose them in the image definition"),
    ("harvester_chart_version", "versions are those of the image; choose them in the image definition"),
    ("monitoring_chart_version", "versions are those of the image; choose them in the image definition"),
    ("logging_chart_version", "versions are those of the image; choose them in the image definition"),
    ("kubeovn_chart_version", "versions are those of the image; choose them in the image definition"),
    ("install.force_mbr", "disks always get a GUID partition table, from which BIOS boots too"),
    ("install.no_format", "an install always makes its file systems"),
    ("install.wipe_disks", "it has been replaced; name the disks in `install.wipe_disks_list`"),
    ("install.raw_disk_image_path", "raw images are not written; boot the medium, or set `install.medium`"),
    ("install.harvester.enable_go_cover_dir", "it is of use for test builds of another product only"),
    (
        "os.after_install_chroot_commands",
        "the system is read-only; put packages into the image definition and files into `os.write_files`",
    ),
    ("install.management_interface.default_route", "the default route always goes over this network"),
    (
        "install.management_interface.bond_options.fail_over_mac",
        "it cannot be combined with a bridge on the bond",
    ),
];

/// Why the key at this dotted path is refused, if it is a known one.
pub(super) fn reason(path: &str) -> Option<&'static str> {
    RETIRED.iter().find(|(retired, _)| *retired == path).map(|(_, reason)| *reason)
}
