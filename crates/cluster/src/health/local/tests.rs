use super::*;
use crate::health::check::CheckClass;
use machine::image_health::DamageFinding;
use testing::machine::block_device as make;
use testing::node::release_with_images as sample;
use testing::runner::ScriptedRunner;

const A: &str = "0a0b0c0d-0000-4000-8000-000000000004";
const OEM: &str = "0a0b0c0d-0000-4000-8000-000000000003";
const VAR: &str = "0a0b0c0d-0000-4000-8000-000000000007";
const MOUNTINFO: &str = "22 1 8:4 / / ro,relatime - squashfs /dev/sda4 ro\n\
    23 22 8:7 / /var rw,noatime - ext4 /dev/sda7 rw\n24 22 8:3 / /oem rw,nosuid - ext4 /dev/sda3 rw\n";

/// With these failed units; none if systemd does not answer.
fn systemd(failed: Option<&str>) -> ScriptedRunner {
    match failed {
        Some(json) => ScriptedRunner::new().answer("systemctl list-units", json),
        None => ScriptedRunner::failing("no bus"),
    }
}

fn put(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn node() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for (name, number, id) in [("sda3", "8:3", OEM), ("sda4", "8:4", A), ("sda7", "8:7", VAR)] {
        make(root, name, number, Some(&format!("/dev/disk/by-partuuid/{id}")));
    }
    let line = format!(
        "root=PARTUUID={A} ro nqrust.slot=a nqrust.config=PARTUUID={OEM} nqrust.persistent=PARTUUID={VAR}\n"
    );
    put(root, "proc/cmdline", line);
    put(root, "proc/self/mountinfo", MOUNTINFO);
    put(root, "oem/release.json", sample().to_bytes());
    put(root, "sys/class/watchdog/watchdog0/state", "active\n");
    dir
}

fn told(root: &Path, failed: Option<&str>) -> Vec<String> {
    results(root, &systemd(failed)).iter().map(ToString::to_string).collect()
}

#[test]
fn a_node_as_it_was_installed_has_nothing_wrong() {
    let root = node();
    let results = results(root.path(), &systemd(Some("[]")));
    assert!(results.iter().all(|result| result.finding.holds()), "{results:?}");
    let names: Vec<_> = results.iter().map(CheckResult::name).collect();
    assert_eq!(
        names,
        [
            "root",
            "image",
            "mounts",
            "arrays",
            "paths",
            "spare-paths",
            "units",
            "system-units",
            "clock",
            "watchdog"
        ]
    );
}

#[test]
fn damage_of_the_image_that_stays_is_told() {
    let root = node();
    put(root.path(), "var/none", "");
    let image = || told(root.path(), Some("[]"))[1].clone();
    assert_eq!(image(), "image: not applicable");
    let finding = |repaired| DamageFinding {
        at: "2026-12-01T00:00:00Z".into(),
        text: "damage in block 7".into(),
        repaired,
    };
    for (repaired, expected) in
        [(true, "image: healthy"), (false, "image: failing: damage in block 7, not repaired (2026-12-01)")]
    {
        let health = ImageHealth::read(root.path());
        health.note(root.path(), "2026-12-01T00:00:00Z", vec![finding(repaired)]).unwrap();
        assert_eq!(image(), expected);
    }
}

#[test]
fn file_systems_from_elsewhere_are_told() {
    let cases = [
        (MOUNTINFO.replace("squashfs", "overlay"), "root: failing: it is read-only overlay"),
        (
            MOUNTINFO.replace("/ / ro,relatime - squashfs /dev/sda4 ro", "/ / rw - squashfs x rw"),
            "root: failing: it is writable",
        ),
        (MOUNTINFO.replace("8:4", "8:3"), "root: failing: it is on sda3, not on /dev/disk/by-partuuid/"),
        (MOUNTINFO.replace("8:7", "8:3"), "mounts: failing: /var: it is on sda3"),
        (MOUNTINFO.replace("/oem", "/other"), "mounts: failing: nothing is mounted at /oem"),
        (MOUNTINFO.replace("/dev/sda7 rw", "/dev/sda7 ro"), "mounts: failing: /var is read-only"),
        (String::new(), "root: failing: nothing is mounted at /"),
    ];
    for (mountinfo, expected) in cases {
        let root = node();
        put(root.path(), "proc/self/mountinfo", mountinfo);
        let told = told(root.path(), Some("[]"));
        assert!(told.iter().any(|line| line.starts_with(expected)), "{expected}: {told:?}");
    }
}

#[test]
fn the_last_root_of_the_command_line_counts() {
    let root = node();
    let line = read_text(&root.path().join("proc/cmdline")).unwrap();
    put(root.path(), "proc/cmdline", format!("{} root=/dev/sda3\n", line.trim()));
    assert!(told(root.path(), Some("[]"))[0].contains("it is on sda4, not on /dev/sda3"));
}

#[test]
fn a_degraded_array_is_told_by_its_name_and_one_being_rebuilt_is_no_fault() {
    let root = node();
    let put = testing::machine::put_array;
    put(root.path(), "md126", "config", 1, "idle", &[("vda3", "in_sync")]);
    put(root.path(), "md125", "data", 1, "recover", &[("vda8", "spare"), ("vdb8", "in_sync")]);
    let told = told(root.path(), Some("[]"));
    assert!(told[3].starts_with("arrays config: failing: config DEGRADED: 1 of 2"), "{told:?}");
    assert_eq!(told[4], "arrays data: healthy");
}

#[test]
fn a_disk_with_several_paths_needs_its_map_and_a_path_to_spare() {
    let root = node();
    let checks = || {
        let runner = systemd(Some("[]")).answer("dmsetup status", "");
        let results = results(root.path(), &runner);
        [4, 5].map(|index: usize| results[index].to_string())
    };
    assert_eq!(checks(), ["paths: not applicable", "spare-paths: not applicable"]);
    let line = fs::read_to_string(root.path().join("proc/cmdline")).unwrap();
    put(root.path(), "proc/cmdline", format!("{} nqrust.multipath=3600c0ff0\n", line.trim_end()));
    let none = "failing: /dev/mapper/3600c0ff0: NO MAP: multipathd did not make it";
    assert_eq!(checks(), [format!("paths: {none}"), format!("spare-paths: {none}")]);
    put(root.path(), "sys/block/dm-0/dm/uuid", "mpath-3600c0ff0\n");
    put(root.path(), "sys/block/dm-0/slaves/sda/dev", "8:0\n");
    let one = "spare-paths: failing: /dev/mapper/3600c0ff0: ONLY ONE PATH WORKS: sda up";
    assert_eq!(checks(), ["paths: healthy", one]);
    put(root.path(), "sys/block/dm-0/slaves/sdb/dev", "8:16\n");
    assert_eq!(checks(), ["paths: healthy", "spare-paths: healthy"]);
}

#[test]
fn failed_units_are_told_one_by_one_and_those_of_people_not_at_all() {
    let root = node();
    let failed = r#"[{"unit":"nqrust-cards.service","load":"loaded","active":"failed"},{"unit":"ssh.service"},
        {"unit":"run-r1.service"},{"unit":"user@1000.service"}]"#;
    let told = told(root.path(), Some(failed));
    assert_eq!(
        told[6..8],
        [
            "units nqrust-cards.service: failing: it has failed",
            "system-units ssh.service: failing: it has failed"
        ]
    );
    assert_eq!(told.len(), 10);
}

#[test]
fn a_machine_that_is_no_node_says_so_in_every_check() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "proc/cmdline", "root=/dev/sda1");
    for result in results(root.path(), &systemd(None)) {
        let required = result.check.class == CheckClass::Required;
        let sane = matches!(result.finding, Finding::CannotSay { .. } | Finding::NotApplicable);
        assert!(sane || !required, "{result}");
    }
}

#[test]
fn a_clock_before_the_release_is_told_with_both_times() {
    let root = node();
    let release = model::release::Release { epoch: 1_700_000_000, ..sample() };
    put(root.path(), "oem/release.json", release.to_bytes());
    let at = |seconds| clock(root.path(), UNIX_EPOCH + Duration::from_secs(seconds));
    assert_eq!(at(1_700_000_000), Finding::Healthy);
    assert_eq!(
        at(0).reason(),
        Some("the clock says 1970-01-01 00:00, which is before the release was made: 2023-11-14 22:13")
    );
}

#[test]
fn a_watchdog_that_nobody_has_opened_is_none() {
    let root = node();
    assert_eq!(watchdog(root.path()), Ok(()));
    put(root.path(), "sys/class/watchdog/watchdog0/state", "inactive\n");
    assert!(watchdog(root.path()).unwrap_err().contains("not running"));
    fs::remove_dir_all(root.path().join("sys/class/watchdog")).unwrap();
    assert!(watchdog(root.path()).unwrap_err().contains("no watchdog"));
}
