//! systemd itself reads the units of the OS image and those that `apply` enables, and finds nothing wrong with them.
//!
//! What they need from the rest of the image, Debian's own units and the programs, stands in for the real ones.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test ends where it cannot go on, helpers included"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::configuration::{self, MachineSize};
use machine::node_files::FileKind;
use model::config::parse;

/// Where systemd looks for what a package brings, and for what the machine's owner adds.
const UNITS: [&str; 2] = ["usr/lib/systemd/system", "etc/systemd/system"];

fn overlay() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlays/rootfs")
}

fn put(root: &Path, path: &str, text: &str, mode: u32) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The overlay of the OS image, with stand-ins for every program that its units start.
fn image() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for entry in walkdir::WalkDir::new(overlay()).sort_by_file_name() {
        let entry = entry.unwrap();
        let target = root.path().join(entry.path().strip_prefix(overlay()).unwrap());
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target).unwrap();
        } else if entry.path_is_symlink() {
            symlink(fs::read_link(entry.path()).unwrap(), &target).unwrap();
        } else {
            let path = target.strip_prefix(root.path()).unwrap().to_str().unwrap().to_owned();
            put(root.path(), &path, &fs::read_to_string(entry.path()).unwrap(), 0o644);
        }
    }
    let units = own_units(root.path());
    for unit in &units {
        for program in programs(&fs::read_to_string(unit).unwrap()) {
            put(root.path(), program.trim_start_matches('/'), "#!/bin/sh\n", 0o755);
        }
    }
    for target in [
        "multi-user",
        "network-pre",
        "network-online",
        "sysinit",
        "basic",
        "shutdown",
        "local-fs",
        "umount",
        "swap",
    ] {
        put(root.path(), &format!("{}/{target}.target", UNITS[0]), "[Unit]\nDescription=stand-in\n", 0o644);
    }
    root
}

/// The programs that a unit starts, without systemd's prefixes.
fn programs(unit: &str) -> BTreeSet<String> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix("Exec")?.split_once('='));
    lines
        .filter_map(|(_, command)| command.split_whitespace().next())
        .map(|program| program.trim_start_matches(['-', '@', '+', '!', ':']).to_owned())
        .filter(|program| program.starts_with('/'))
        .collect()
}

/// The unit files below `root` that are files, and no drop-ins.
fn own_units(root: &Path) -> Vec<PathBuf> {
    let mut units = Vec::new();
    for directory in UNITS {
        let Ok(entries) = fs::read_dir(root.join(directory)) else { continue };
        let paths = entries.map(|entry| entry.unwrap().path());
        units.extend(paths.filter(|path| path.is_file() && !path.is_symlink()));
    }
    units.retain(|path| path.extension().is_some_and(|kind| kind == "service" || kind == "mount"));
    units.sort();
    units
}

/// What systemd says of these units of the system at `root`.
fn verify(root: &Path, units: &[PathBuf]) -> Result<(), String> {
    let names = units.iter().map(|unit| unit.file_name().unwrap());
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=one", "--root"])
        .arg(root)
        .args(names)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() && said.trim().is_empty() { Ok(()) } else { Err(said) }
}

fn missing(test: &str) -> bool {
    let missing = testing::programs::find("systemd-analyze").is_none();
    if missing {
        testing::programs::leave_out(test, "systemd-analyze is not on this machine");
    }
    missing
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units_of_the_image() {
    if missing("systemd_finds_nothing_wrong_with_the_units_of_the_image") {
        return;
    }
    let root = image();
    let units = own_units(root.path());
    assert!(units.iter().any(|unit| unit.ends_with("nqrust-ready.service")), "{units:?}");
    verify(root.path(), &units).unwrap();
}

#[test]
fn the_screen_of_a_node_shows_the_node_and_falls_back_on_a_login() {
    let test = "the_screen_of_a_node_shows_the_node_and_falls_back_on_a_login";
    if missing(test) {
        return;
    }
    let root = image();
    // Debian's own unit, as far as it matters.
    let getty = "[Unit]\nDescription=stand-in\n[Service]\nExecStart=-/sbin/agetty - $TERM\nRestart=always\n\
                 StandardInput=tty\nTTYPath=/dev/%I\n";
    let screen = [root.path().join(UNITS[0]).join("getty@tty1.service")];
    put(root.path(), &format!("{}/getty@.service", UNITS[0]), getty, 0o644);
    verify(root.path(), &screen).unwrap();
    let drop_in = root.path().join(UNITS[0]).join("getty@tty1.service.d/20-nqrust-console.conf");
    let text = fs::read_to_string(&drop_in).unwrap();
    assert!(text.contains("OnFailure=nqrust-login@%i.service\n"), "{text}");
    assert!(root.path().join(UNITS[0]).join("nqrust-login@.service").is_file());
    fs::write(&drop_in, text.replace("StartLimitBurst=5", "StartLimitBurst=some")).unwrap();
    assert!(verify(root.path(), &screen).unwrap_err().contains("20-nqrust-console"), "it is read");
}

#[test]
fn every_login_knows_the_name_that_shows_the_node() {
    let system = overlay().join("usr/lib/systemd/system");
    for unit in
        ["getty@.service.d/10-nqrust.conf", "serial-getty@.service.d/10-nqrust.conf", "nqrust-login@.service"]
    {
        let text = fs::read_to_string(system.join(unit)).unwrap();
        let program = "agetty --login-program /usr/lib/nqrust/login --login-options '-- \\\\u' ";
        assert!(text.contains(program), "{unit}: {text}");
    }
    // With the names of the programs that it becomes, told instead of started.
    let script = fs::read_to_string(overlay().join("usr/lib/nqrust/login")).unwrap();
    let told = script.replace("exec /", "echo /");
    let ask = |arguments: &[&str]| {
        let output = Command::new("sh").args(["-c", &told, "login"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().next().unwrap().to_owned()
    };
    assert_eq!(ask(&["--", "console"]), "/usr/bin/installer console --login --idle-limit 15");
    assert_eq!(ask(&["--", "admin"]), "/bin/login -p -- admin");
    assert_eq!(ask(&["--", "-f root"]), "/bin/login -p -- -f root");
    assert_eq!(ask(&[]), "/bin/login -p --");
    let mode = fs::metadata(overlay().join("usr/lib/nqrust/login")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111);
}

#[test]
fn the_metrics_of_a_node_are_written_where_its_page_says() {
    let system = overlay().join(UNITS[0]);
    let unit = fs::read_to_string(system.join("nqrust-metrics.service")).unwrap();
    assert!(unit.contains(&format!(" status --metrics {}\n", node::metrics::FILE)), "{unit}");
    assert!(unit.contains("\nExecStart=-/"), "a node without metrics still is a node: {unit}");
    let timer = fs::read_to_string(system.join("nqrust-metrics.timer")).unwrap();
    assert!(timer.contains("\nConditionKernelCommandLine=!nqrust.slot=recovery\n"), "{timer}");
    let wanted = system.join("multi-user.target.wants/nqrust-metrics.timer");
    assert_eq!(fs::read_link(wanted).unwrap(), Path::new("../nqrust-metrics.timer"));
    let page = fs::read_to_string(testing::docs::repository().join("docs/how-to/metrics.md")).unwrap();
    let directory = Path::new(node::metrics::FILE).parent().unwrap().display();
    assert!(page.contains(&format!("hostPath: {{path: {directory}, ")), "{directory}");
}

#[test]
fn consoles_show_what_the_watching_unit_writes() {
    let directory = overlay().join("etc/issue.d");
    let link = fs::read_link(directory.join("50-nqrust.issue")).unwrap();
    assert_eq!(
        Path::new("../..").join(cluster::stages::readiness_watch::ISSUE.trim_start_matches('/')),
        link
    );
    assert!(overlay().join("etc/issue").is_file(), "agetty reads issue.d only beside an issue");
}

#[test]
fn a_login_says_which_network_card_is_missing_before_anything_else() {
    let directory = overlay().join("etc/issue.d");
    let link = fs::read_link(directory.join("40-nqrust-cards.issue")).unwrap();
    assert_eq!(Path::new("../..").join(machine::nics::missing::ISSUE), link);
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    // agetty takes them in the order of their names.
    names.sort();
    assert_eq!(names[0], "40-nqrust-cards.issue");
}

#[test]
fn cards_are_looked_for_before_networkmanager_starts() {
    let unit = fs::read_to_string(overlay().join(UNITS[0]).join("nqrust-cards.service")).unwrap();
    assert!(unit.contains("\nBefore=network-pre.target NetworkManager.service\n"), "{unit}");
    assert!(unit.contains("\nConditionKernelCommandLine=nqrust.slot\n"), "not on a live system: {unit}");
    let wanted = overlay().join(UNITS[0]).join("multi-user.target.wants/nqrust-cards.service");
    assert_eq!(fs::read_link(wanted).unwrap(), Path::new("../nqrust-cards.service"));
}

#[test]
fn the_keyboard_layout_that_a_node_writes_is_loaded_before_anyone_can_log_in() {
    let unit = fs::read_to_string(overlay().join(UNITS[0]).join("nqrust-keyboard.service")).unwrap();
    assert!(unit.contains("\nConditionPathExists=/etc/vconsole.conf\n"), "{unit}");
    assert!(unit.contains("\nEnvironmentFile=/etc/vconsole.conf\n"), "{unit}");
    assert!(unit.contains("\nBefore=sysinit.target shutdown.target\n"), "{unit}");
    let wanted = overlay().join(UNITS[0]).join("sysinit.target.wants/nqrust-keyboard.service");
    assert_eq!(fs::read_link(wanted).unwrap(), Path::new("../nqrust-keyboard.service"));
}

#[test]
fn a_node_without_a_document_asks_and_offers_no_login() {
    let system = overlay().join(UNITS[0]);
    let text = |unit: &str| fs::read_to_string(system.join(unit)).unwrap();
    let document = machine::paths::DOCUMENT;
    assert!(text("nqrust-first-start.service").contains(&format!("\nConditionPathExists=!{document}\n")));
    let defaults = machine::paths::DEFAULTS;
    assert!(text("nqrust-first-start.service").contains(&format!("\nConditionPathExists={defaults}\n")));
    let ssh = text("ssh.service.d/10-nqrust.conf");
    assert!(ssh.contains(&format!("\nConditionPathExists={document}\n")), "{ssh}");
    // The recovery system says on its consoles that there is no document, and has no accounts then.
    let either =
        format!("\nConditionPathExists=|{document}\nConditionKernelCommandLine=|nqrust.slot=recovery\n");
    for unit in ["getty@", "serial-getty@"] {
        let text = text(&format!("{unit}.service.d/10-nqrust.conf"));
        assert!(text.contains(&either), "{unit}: {text}");
    }
    for unit in ["nqrust-cards", "nqrust-ready"] {
        let text = text(&format!("{unit}.service"));
        assert!(text.contains(&format!("\nConditionPathExists={document}\n")), "{unit}: {text}");
    }
    let wanted = system.join("multi-user.target.wants/nqrust-first-start.service");
    assert_eq!(fs::read_link(wanted).unwrap(), Path::new("../nqrust-first-start.service"));
}

#[test]
fn systemd_is_asked_in_earnest() {
    if missing("systemd_is_asked_in_earnest") {
        return;
    }
    let root = image();
    let unit = root.path().join(UNITS[0]).join("nqrust-ready.service");
    let text = fs::read_to_string(&unit).unwrap();
    fs::write(&unit, text.replace("Restart=on-failure", "Restart=sometimes\nColour=red")).unwrap();
    let said = verify(root.path(), &own_units(root.path())).unwrap_err();
    assert!(said.contains("sometimes") && said.contains("Colour"), "{said}");
    fs::remove_file(root.path().join("usr/bin/installer")).unwrap();
    fs::write(&unit, text).unwrap();
    assert!(verify(root.path(), &own_units(root.path())).unwrap_err().contains("/usr/bin/installer"));
}

#[test]
fn the_links_of_each_role_enable_one_unit_and_mask_the_others() {
    let test = "the_links_of_each_role_enable_one_unit_and_mask_the_others";
    if missing(test) {
        return;
    }
    let join =
        |role: &str| format!("server_url: https://192.0.2.10\ninstall: {{mode: join, role: {role}}}\n");
    let create = "install: {mode: create, vip: 192.0.2.10}\n".to_owned();
    let server = ["rke2-server", "k3s"];
    let agent = ["rke2-agent", "k3s-agent"];
    let cases = [
        (create, server, 3),
        (join("management"), server, 3),
        (join("witness"), server, 3),
        (join("worker"), agent, 3),
        (join("default"), agent, 2),
    ];
    for (document, runs, masked) in cases {
        for (distribution, runs) in ["rke2", "k3s"].into_iter().zip(runs) {
            let text =
                format!("{document}token: a-token-of-a-test\nkubernetes: {{distribution: {distribution}}}\n");
            let root = image();
            for unit in server.iter().chain(&agent) {
                let unit_text = format!("[Unit]\nDescription={unit}\n[Service]\nExecStart=/usr/bin/{unit}\n");
                put(root.path(), &format!("{}/{unit}.service", UNITS[0]), &unit_text, 0o644);
                put(root.path(), &format!("usr/bin/{unit}"), "#!/bin/sh\n", 0o755);
            }
            let config = parse(&text, "f").unwrap_or_else(|error| panic!("{error}"));
            for file in
                configuration::files(&config, Some("node-1"), MachineSize { cpus: 4, memory: 8192 }, false)
            {
                if file.kind == FileKind::Link {
                    let link = root.path().join(&file.path);
                    fs::create_dir_all(link.parent().unwrap()).unwrap();
                    symlink(String::from_utf8(file.bytes).unwrap(), link).unwrap();
                }
            }
            let state = |unit: &str| {
                let output = Command::new("systemctl")
                    .arg("--root")
                    .arg(root.path())
                    .args(["is-enabled", unit])
                    .output();
                String::from_utf8_lossy(&output.unwrap().stdout).trim().to_owned()
            };
            let states: Vec<_> = server.iter().chain(&agent).map(|unit| (*unit, state(unit))).collect();
            let count = |wanted: &str| states.iter().filter(|(_, state)| state == wanted).count();
            assert_eq!((count("enabled"), count("masked")), (1, masked), "{text}: {states:?}");
            assert!(states.contains(&(runs, "enabled".to_owned())), "{text}: {states:?}");
            verify(root.path(), &[root.path().join(UNITS[0]).join("multi-user.target")]).unwrap();
        }
    }
}
