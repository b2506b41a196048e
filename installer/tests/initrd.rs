//! What the initrd of the image says when a boot fails in it, run by a shell with dracut's functions played.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use machine::verity_device::ROOT_DEVICE;

const MODULE: &str = "../overlays/initrd/usr/lib/dracut/modules.d/95nqrust";

/// What stands on the console after the hook has run with these kernel parameters, and what it waited.
fn said(shell: &str, emergency: &str) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    fs::write(at("console"), "").unwrap();
    // Below /dev, as the kernel names consoles.
    fs::write(at("consoles"), format!("..{} -W- (EC p a)\nttyNONE -W-\n", at("console"))).unwrap();
    let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE).join("say-why.sh");
    let played = format!(
        "getargbool() {{ [ {shell} = 1 ]; }}\n\
         getarg() {{ echo {emergency}; }}\n\
         systemctl() {{ echo 'nqrust-boot.service loaded failed failed Mount'; }}\n\
         journalctl() {{ echo \"error: mounting /oem ($*)\"; }}\n\
         sleep() {{ echo \"$1\" >> {waited}; }}\n\
         source_hook() {{ echo '\"/dev/disk/by-partuuid/x\" does not exist'; . {hook}; }}\n\
         . {hook}\n. {hook}\n",
        waited = at("waited"),
        hook = hook.display(),
    );
    fs::write(at("installer"), "#!/bin/sh\necho \"installer $*\"\n").unwrap();
    fs::set_permissions(at("installer"), fs::Permissions::from_mode(0o755)).unwrap();
    // The report is in memory of the initrd; here it would be the machine's.
    let script = fs::read_to_string(&hook).unwrap();
    assert!(script.contains("nqrust_report=/run/nqrust-boot-failed\n"));
    fs::write(at("hook.sh"), script.replace("/run/nqrust-boot-failed", &at("report"))).unwrap();
    let played = played.replace(&hook.display().to_string(), &at("hook.sh"));
    let output = Command::new("sh")
        .arg("-c")
        .arg(played)
        .env("NQRUST_CONSOLES", at("consoles"))
        .env("NQRUST_INSTALLER", at("installer"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(!Path::new("/dev/ttyNONE").exists(), "a console that is not there is not made");
    let read = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
    (read("console"), read("waited"))
}

#[test]
fn a_boot_that_fails_in_the_initrd_says_why_on_the_console_and_waits_before_the_restart() {
    let (console, waited) = said("0", "reboot");
    for line in [
        "THIS MACHINE CANNOT START: the boot failed before its system ran.\r\n",
        "nqrust-boot.service has failed:\r\n",
        "--unit nqrust-boot.service)\r\n",
        "\"/dev/disk/by-partuuid/x\" does not exist\r\n",
        "installer --progress plain root repair\r\n",
        "It starts again in 60 seconds.\r\n",
    ] {
        assert!(console.contains(line), "{line:?} in {console:?}");
    }
    assert_eq!(console.matches("CANNOT START").count(), 1);
    assert_eq!(waited, "60\n", "the hook is run twice, and waits once");
    assert!(said("0", "").0.contains("It stops in 60 seconds."));
    assert_eq!(said("1", "").1, "", "who has asked for a shell gets it at once");
}

#[test]
fn the_hook_is_part_of_the_initrd_wherever_a_boot_ends_in_it() {
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE).join("module-setup.sh");
    let setup = fs::read_to_string(setup).unwrap();
    for hook in ["emergency", "shutdown-emergency"] {
        assert!(setup.contains(&format!("inst_hook {hook} 99 \"$moddir/say-why.sh\"\n")), "{hook}");
    }
    assert!(setup.contains("inst_multiple curl journalctl "), "the hook's programs are there");
}

/// What the hook makes below `etc` of an initrd with the rule `60-multipath`, for that value of `nqrust.multipath`.
fn multipath_files(value: &str) -> Vec<(String, String)> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("usr/lib/nqrust/multipath")).unwrap();
    fs::write(root.join("usr/lib/nqrust/multipath/60-multipath.rules"), "rule").unwrap();
    let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE).join("multipath.sh");
    let played =
        format!("getarg() {{ [ \"$1\" = nqrust.multipath= ] && echo '{value}'; }}\n. {}\n", hook.display());
    let output = Command::new("sh").arg("-c").arg(played).env("NQRUST_ROOT", root).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let made = ["multipath/wwids", "udev/rules.d/60-multipath.rules"].into_iter();
    made.filter_map(|name| Some((name.to_owned(), fs::read_to_string(root.join("etc").join(name)).ok()?)))
        .collect()
}

#[test]
fn only_a_node_on_disks_with_several_paths_has_them_named_to_multipathd_and_its_rules_in_effect() {
    assert_eq!(multipath_files(""), []);
    let [wwids, rule] = &multipath_files("3600c0ff0,3600c0ff1")[..] else { panic!("two files") };
    assert_eq!(wwids.1, "/3600c0ff0/\n/3600c0ff1/\n");
    assert_eq!(rule.1, "rule");
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE);
    let unit = fs::read_to_string(module.join("multipathd.conf")).unwrap();
    assert!(unit.contains("\nConditionKernelCommandLine=nqrust.multipath\nAfter=dracut-cmdline.service"));
    let omitted = fs::read_to_string(module.join("../../../../../etc/dracut.conf.d/50-nqrust.conf")).unwrap();
    assert!(!omitted.contains("multipath"), "dracut's own module is taken where the base has its programs");
}

/// What dracut's scripts know after the hook for that value of `nqrust.crash`: the root file system, and for what they wait.
fn crash_start(value: &str) -> (String, Option<String>) {
    let directory = tempfile::tempdir().unwrap();
    let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE).join("parse-crash.sh");
    let played = format!(
        "getarg() {{ [ \"$1\" = nqrust.crash= ] && echo '{value}'; }}\nhookdir={}\n. {}\necho \"$root $rootok\"\n",
        directory.path().display(),
        hook.display()
    );
    let output = Command::new("sh").arg("-c").arg(played).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let waits = fs::read_to_string(directory.path().join("initqueue/finished/nqrust-crash.sh")).ok();
    (String::from_utf8(output.stdout).unwrap().trim().to_owned(), waits)
}

#[test]
fn a_kernel_in_place_of_a_crashed_one_needs_no_root_file_system_and_waits_for_the_partition_of_its_dump() {
    assert_eq!(crash_start(""), (String::new(), None));
    let (root, waits) = crash_start("PARTUUID=0a0b0c0d-0000-4000-8000-000000000007");
    assert_eq!(root, "nqrust-crash 1");
    assert_eq!(waits.unwrap(), "[ -e '/dev/disk/by-partuuid/0a0b0c0d-0000-4000-8000-000000000007' ]\n");
    let link = "/dev/disk/by-id/md-uuid-0a0b0c0d:00004000:80000000:0000000a";
    assert_eq!(crash_start(link).1.unwrap(), format!("[ -e '{link}' ]\n"));
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE);
    let unit = fs::read_to_string(module.join("nqrust-crash-dump.service")).unwrap();
    for line in [
        "ConditionKernelCommandLine=nqrust.crash",
        "SuccessAction=reboot-force",
        "FailureAction=reboot-force",
        "JobTimeoutAction=reboot-force",
        "ExecStart=/usr/bin/installer --progress plain crash dump",
    ] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    let unit = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../overlays/rootfs/usr/lib/systemd/system/nqrust-crash.service");
    let disarm = format!(
        "ExecStop=-/usr/bin/rm -f {}/{}\n",
        machine::crash_dumps::DIRECTORY,
        machine::crash_dumps::ARMED
    );
    assert!(fs::read_to_string(unit).unwrap().contains(&disarm), "{disarm}");
    let setup = fs::read_to_string(module.join("module-setup.sh")).unwrap();
    assert!(setup.contains("inst_hook cmdline 37 \"$moddir/parse-crash.sh\"\n"));
    assert!(
        setup.contains("inst_multiple -o makedumpfile\n") && setup.contains("inst_multiple prlimit umount\n")
    );
}

#[test]
fn only_a_node_with_disks_over_the_network_logs_in_and_before_anything_waits_for_disks() {
    let overlays = Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlays");
    let read = |path: &str| fs::read_to_string(overlays.join(path)).unwrap();
    let unit = fs::read_to_string(Path::new(MODULE).join("nqrust-connect-disks.service")).unwrap();
    for line in [
        "ConditionKernelCommandLine=nqrust.network_disks",
        "Before=dracut-initqueue.service initrd-root-device.target nqrust-root.service",
        "ExecStart=/usr/bin/installer --progress plain disk connect",
        "TimeoutStartSec=infinity",
        "StandardOutput=journal+console",
    ] {
        assert!(unit.lines().any(|other| other == line), "{line}: {unit}");
    }
    let omitted = read("initrd/etc/dracut.conf.d/50-nqrust.conf");
    assert!(omitted.contains(" iscsi "), "dracut's own module takes passwords from the kernel command line");
    // Nothing logs out while the node is on the disks, and iscsid runs in each slot of it.
    let system = "rootfs/usr/lib/systemd/system";
    let logout = read(&format!("{system}/open-iscsi.service.d/10-nqrust.conf"));
    assert!(logout.ends_with("ConditionKernelCommandLine=!nqrust.network_disks\n"), "{logout}");
    let daemon = read(&format!("{system}/iscsid.service.d/20-nqrust-recovery.conf"));
    assert!(daemon.contains("=|!nqrust.slot=recovery\n") && daemon.contains("=|nqrust.network_disks\n"));
    let kept = read(&format!("{system}/nqrust-network-disks.service"));
    assert!(kept.contains("ExecStart=/usr/bin/installer --progress plain disk keep\n"), "{kept}");
}

/// What the generator writes for a kernel command line, if anything: the unit that mounts the root file system, and what it says of the
/// device.
fn generated(line: &str) -> Option<[String; 2]> {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    ["normal", "early", "late"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
    fs::write(at("cmdline"), format!("{line}\n")).unwrap();
    let generator = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE).join("root-generator.sh");
    let directories = ["normal", "early", "late"].map(at);
    let output = Command::new("sh")
        .arg(generator)
        .args(&directories)
        .env("NQRUST_COMMAND_LINE", at("cmdline"))
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(fs::read_dir(at("normal")).unwrap().count() + fs::read_dir(at("late")).unwrap().count(), 0);
    let written = fs::read_dir(at("early")).unwrap().count();
    let device = r"dev-mapper-nqrust\x2droot.device.d/timeout.conf";
    let units = ["sysroot.mount", device].map(|name| fs::read_to_string(at("early").join(name)).ok());
    match units {
        [Some(mount), Some(device)] if written == 2 => Some([mount, device]),
        units => {
            assert!(units.iter().all(Option::is_none) && written == 0, "{line}: {units:?}");
            None
        }
    }
}

#[test]
fn only_an_installed_node_gets_its_root_through_the_device_that_checks_it() {
    let [unit, device] =
        generated("root=PARTUUID=x ro nqrust.config=PARTUUID=y nqrust.slot=b quiet").unwrap();
    assert!(
        unit.contains(&format!("\nWhat={ROOT_DEVICE}\n")) && unit.contains("Requires=nqrust-root.service\n")
    );
    // Disks that come after systemd's 90 seconds start the node as well.
    assert_eq!(device, "[Unit]\nJobTimeoutSec=infinity\nJobRunningTimeoutSec=infinity\n");
    for live in ["root=live:CDLABEL=x nqrust.slots=1", "root=live:http://x/y nqrust.rootfs=z", ""] {
        assert_eq!(generated(live), None, "{live}");
    }
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE);
    let setup = fs::read_to_string(module.join("module-setup.sh")).unwrap();
    for part in ["root-generator.sh", "nqrust-root.service", " dm-verity\n", "livenet dm\n"] {
        assert!(setup.contains(part), "{part}");
    }
    let service = fs::read_to_string(module.join("nqrust-root.service")).unwrap();
    assert!(service.contains("\nExecStart=/usr/bin/installer --progress plain root open\n"));
}

/// What the program that mounts a live system's image does with this argument: its commands, one a line, and whether it succeeds. `failing`
/// is a command that fails.
fn live_root(argument: &str, failing: &str) -> (String, bool) {
    let directory = tempfile::tempdir().unwrap();
    let installer = directory.path().join("installer");
    fs::write(&installer, "#!/bin/sh\necho \"installer $*\"\n[ \"$FAILING\" != installer ]\n").unwrap();
    fs::set_permissions(&installer, fs::Permissions::from_mode(0o755)).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE).join("live-root.sh");
    let hooks = directory.path().join("emergency");
    fs::create_dir(&hooks).unwrap();
    let below = directory.path().join("below");
    for file in [
        "usr/lib/systemd/systemd",
        "usr/lib/x86_64-linux-gnu/systemd/libsystemd-core.so",
        "usr/bin/installer",
    ] {
        fs::create_dir_all(below.join(file).parent().unwrap()).unwrap();
        fs::write(below.join(file), "").unwrap();
    }
    let played: String = ["mkdir", "mount", "cat", "ln", "need_shutdown"]
        .iter()
        .map(|name| format!("{name}() {{ echo \"{name} $*\" >&2; [ {name} != \"$FAILING\" ]; }}\n"))
        .collect();
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "{played}getarg() {{ :; }}\ninfo() {{ echo \"$*\" >&2; }}\n\
             die() {{ echo \"die: $*\" >&2; exit 1; }}\n. {}\n",
            program.display()
        ))
        .args(["sh", argument])
        .env("NQRUST_INSTALLER", &installer)
        .env("NQRUST_BELOW", &below)
        .env("NQRUST_TOLD", directory.path().join("told"))
        .env("hookdir", directory.path())
        .env("FAILING", failing)
        .output()
        .unwrap();
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default();
    // A hook shows what the installer said.
    assert_eq!(read(hooks.join("50-nqrust-root.sh")).starts_with("cat /"), failing == "installer");
    let said = String::from_utf8(output.stderr).unwrap() + &read(directory.path().join("told"));
    (said, output.status.success())
}

#[test]
fn a_live_system_gets_its_root_through_the_device_too_from_a_medium_or_from_memory() {
    let (did, succeeded) = live_root("/dev/sr0", "");
    assert!(did.contains("installer --progress plain root open --medium /run/initramfs/live\n"), "{did}");
    let order = [
        "mount -n -t iso9660 -o ro /dev/sr0 /run/initramfs/live\n",
        &format!("mount -n -t squashfs -o ro {ROOT_DEVICE} /"),
        "/below/usr/lib/systemd/systemd\n",
        "/below/usr/lib/x86_64-linux-gnu/systemd/libsystemd-core.so\n",
        "/below/usr/bin/installer\n",
        "ln -s null /dev/root\n",
        "need_shutdown",
    ];
    let places: Vec<_> =
        order.iter().map(|part| did.find(part).unwrap_or_else(|| panic!("{part} in {did}"))).collect();
    assert!(succeeded && places.is_sorted(), "{did}");
    let image = tempfile::NamedTempFile::new().unwrap();
    let (path, directory) = (image.path().display(), image.path().parent().unwrap().display());
    let (did, succeeded) = live_root(&path.to_string(), "");
    let opened = format!("installer --progress plain root open --medium {directory} --image {path}\n");
    assert!(succeeded && did.contains(&opened) && !did.contains("iso9660"), "{did}");
    for (failing, said) in [
        ("mount", "die: The medium in /dev/sr0 cannot be mounted.\n"),
        ("installer", "die: The OS image cannot be opened.\n"),
        ("cat", "die: The OS image is damaged where the system starts.\n"),
    ] {
        let (did, succeeded) = live_root("/dev/sr0", failing);
        assert!(!succeeded && did.contains(said), "{failing}: {did}");
        assert!(!did.contains("/dev/root"), "{failing}: {did}");
    }
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE).join("module-setup.sh");
    let setup = fs::read_to_string(setup).unwrap();
    let removed = setup.find("rm -f \"$initdir/sbin/dmsquash-live-root\"");
    assert!(removed.is_some() && removed < setup.find("live-root.sh\" /sbin/dmsquash-live-root\n"));
}

#[test]
fn what_the_initrd_runs_as_a_program_may_be_run() {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE);
    let setup = fs::read_to_string(module.join("module-setup.sh")).unwrap();
    let named =
        setup.lines().filter(|line| line.contains("inst_script ") || line.contains("inst_hook cmdline"));
    let names: Vec<_> = named.filter_map(|line| line.split("$moddir/").nth(1)?.split('"').next()).collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        // dracut copies the mode.
        let mode = fs::metadata(module.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{name}");
    }
}

#[test]
fn the_initrd_lets_the_watchdog_end_a_hang_as_the_image_does() {
    let settings = same_in_the_image("watchdog.conf", "system.conf.d/10-nqrust-watchdog.conf");
    assert!(settings.contains("\nRuntimeWatchdogSec=") && settings.contains("\nRebootWatchdogSec="));
    let told = installed();
    assert!(told.contains("modules =drivers/watchdog i2c-i801 lpc_ich\n"), "{told}");
    let place = "file ./watchdog.conf /usr/lib/systemd/system.conf.d/10-nqrust-watchdog.conf\n";
    assert!(told.contains(place), "{told}");
}

#[test]
fn the_initrd_ends_a_trial_without_a_verdict_as_the_image_does() {
    let timer = same_in_the_image("nqrust-trial.timer", "system/nqrust-trial.timer");
    assert!(timer.contains("\nConditionKernelCommandLine=nqrust.trial\n") && timer.contains("\nOnBootSec="));
    let service = same_in_the_image("nqrust-trial.service", "system/nqrust-trial.service");
    assert!(service.contains("\nSuccessAction=reboot-force\nFailureAction=reboot-force\n"));
    let wants = "overlays/rootfs/usr/lib/systemd/system/sysinit.target.wants/nqrust-trial.timer";
    let wants = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(wants);
    assert_eq!(fs::read_link(wants).unwrap(), Path::new("../nqrust-trial.timer"));
    let told = installed();
    for unit in ["nqrust-trial.timer", "nqrust-trial.service"] {
        assert!(told.contains(&format!("file ./{unit} units/{unit}\n")), "{told}");
    }
    assert!(told.contains("systemctl -q --root . add-wants sysinit.target nqrust-trial.timer\n"), "{told}");
}

/// The text of a file that the initrd has from dracut's module, and the image at this path of its systemd.
fn same_in_the_image(name: &str, path: &str) -> String {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(package.join(MODULE).join(name)).unwrap();
    let image = package.join("../overlays/rootfs/usr/lib/systemd").join(path);
    assert_eq!(text, fs::read_to_string(image).unwrap(), "{name}");
    text
}

/// What the module calls dracut's functions with.
fn installed() -> String {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE);
    let played = format!(
        "moddir=. initdir=. systemdsystemunitdir=units SYSTEMCTL='echo systemctl'; instmods() {{ echo modules $*; }}; inst_simple() {{ echo file $*; }}
         inst_hook() {{ :; }}; inst_script() {{ :; }}; inst_multiple() {{ :; }}
         . {}; installkernel; install",
        module.join("module-setup.sh").display()
    );
    let output = Command::new("bash").arg("-c").arg(played).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
