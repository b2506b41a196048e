//! One tree in every form.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tar::EntryType;

use crate::build::{GivenTime, Layout, build, build_at};
use crate::entries::{Entry, TIME, archive, device, directory, file, hard_link, link, read};

/// `cap_net_raw=ep` as the kernel keeps it for a file, in its second version.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Everything that a tree can have and that has to survive.
fn kept() -> Vec<Entry> {
    let tool = Entry::new("./usr/bin/tool", EntryType::Regular, 0o4755, "tool");
    let long = format!("./usr/share/{}/{}", "long".repeat(20), "name".repeat(20));
    vec![
        directory("./"),
        directory("./dev/"),
        directory("./etc/"),
        Entry::new("./etc/shadow", EntryType::Regular, 0o640, "secret").owner(0, 42),
        directory("./proc/"),
        directory("./run/"),
        Entry::new("./run/pipe", EntryType::Fifo, 0o620, "").owner(0, 5),
        directory("./srv/"),
        directory("./usr/"),
        directory("./usr/bin/"),
        file("./usr/bin/ping", "ping").attribute("security.capability", &CAPABILITY),
        hard_link("./usr/bin/ping6", "./usr/bin/ping"),
        tool.attribute("user.note", b"kept\0whole"),
        directory("./usr/lib/"),
        directory("./usr/lib/dev/"),
        file("./usr/lib/dev/module.ko", "not a device"),
        directory("./usr/share/"),
        directory(&format!("./usr/share/{}/", "long".repeat(20))),
        file(&long, "long"),
        file("./usr/share/Wörter", "name"),
        file("./usr/share/two\n words ", "name"),
        directory("./var/"),
        link("./var/run", "/run"),
        Entry::new("./var/spool/", EntryType::Directory, 0o3775, "").owner(33, 8),
    ]
}

/// The same with what a base leaves out, as exports of running systems and of containers have it.
fn given() -> Vec<Entry> {
    let mut entries = kept();
    // A temporary directory is what many trees are made in; its mode is not that of `/`.
    entries[0].mode = 0o700;
    entries.extend([
        file("./.dockerenv", ""),
        device("./dev/null"),
        device("/dev/zero"),
        hard_link("./dev/nothing", "./dev/null"),
        device("./srv/null"),
        hard_link("./srv/nothing", "./srv/null"),
        directory("./proc/1/"),
        file("./proc/1/environ", "PATH=/"),
    ]);
    entries
}

/// The expected files of a base of `entries`: in a tar archive's order, the first of equal files is the file and the others are links.
fn expected(entries: &[Entry]) -> BTreeMap<String, Entry> {
    entries.iter().map(|entry| (entry.name.clone(), entry.clone())).collect()
}

/// Runs a command as root or as what looks like root to it.
fn as_root() -> Command {
    if nix::unistd::geteuid().is_root() {
        return Command::new("env");
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-auto", "--map-root-user"]);
    command
}

/// Unpacks `entries` below `root`, device nodes only where this user can make them.
fn unpack(entries: &[Entry], root: &Path) {
    let possible = |entry: &&Entry| {
        nix::unistd::geteuid().is_root() || !entry.name.ends_with("/null") && !entry.name.ends_with("/zero")
    };
    let possible = |entry: &&Entry| {
        possible(entry) && (nix::unistd::geteuid().is_root() || !entry.name.ends_with("/nothing"))
    };
    let possible: Vec<Entry> = entries.iter().filter(possible).cloned().collect();
    fs::create_dir(root).unwrap();
    let tar = root.with_extension("tar");
    fs::write(&tar, archive(&possible)).unwrap();
    let mut command = as_root();
    command.args([
        "tar",
        "--extract",
        "--preserve-permissions",
        "--same-owner",
        "--numeric-owner",
        "--xattrs",
    ]);
    command.args(["--xattrs-include=*", "--file"]).arg(tar).arg("--directory").arg(root);
    assert!(command.status().unwrap().success());
}

fn archive_base(path: &Path) -> Value {
    json!({ "archive": { "path": path } })
}

#[test]
fn a_tree_survives_whole_as_an_archive() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("base.tar");
    fs::write(&path, archive(&given())).unwrap();
    assert_eq!(read(&build(place.path(), &archive_base(&path)).base()), expected(&kept()));
}

#[test]
fn a_compression_is_told_by_the_first_bytes_and_not_by_the_name() {
    let place = tempfile::tempdir().unwrap();
    let plain = place.path().join("base.tar");
    fs::write(&plain, archive(&given())).unwrap();
    let mut bases = vec![fs::read(build(place.path(), &archive_base(&plain)).base()).unwrap()];
    for (number, program) in ["gzip", "xz", "zstd", "bzip2"].iter().enumerate() {
        // A name that lies about the content.
        let path = place.path().join(format!("base-{number}.tar.gz"));
        let mut command = Command::new(program);
        command.arg("-c").stdin(File::open(&plain).unwrap()).stdout(File::create(&path).unwrap());
        assert!(
            command.status().unwrap_or_else(|error| panic!("this test needs {program}: {error}")).success()
        );
        bases.push(fs::read(build(place.path(), &archive_base(&path)).base()).unwrap());
    }
    assert!(bases.iter().all(|base| *base == bases[0]));
}

#[test]
fn a_directory_and_a_layout_give_the_bytes_that_an_archive_gives() {
    let place = tempfile::tempdir().unwrap();
    let (path, root) = (place.path().join("base.tar"), place.path().join("tree"));
    fs::write(&path, archive(&given())).unwrap();
    let whole = fs::read(build(place.path(), &archive_base(&path)).base()).unwrap();
    unpack(&given(), &root);
    let from_directory = build(place.path(), &json!({ "directory": { "path": root } })).base();
    assert_eq!(read(&from_directory), expected(&kept()));
    assert!(fs::read(from_directory).unwrap() == whole, "a directory");
    let layout = Layout::of_layers(&place.path().join("layout"), &[archive(&given())]);
    assert!(fs::read(build(place.path(), &layout).base()).unwrap() == whole, "a layout");
    let tar = place.path().join("layout.tar.gz");
    let mut pack = Command::new("tar");
    pack.args(["--create", "--gzip", "--file"]).arg(&tar).arg("--directory").arg(place.path().join("layout"));
    assert!(pack.arg(".").status().unwrap().success());
    let from_archive = build(place.path(), &json!({ "oci": { "path": tar } })).base();
    assert!(fs::read(from_archive).unwrap() == whole, "an archive of a layout");
    // The files that are left have owners whose files only this namespace can remove.
    assert!(as_root().args(["rm", "-rf"]).arg(root).status().unwrap().success());
}

#[test]
fn the_newest_file_gives_the_time_of_all_in_each_form_unless_one_is_given() {
    let place = tempfile::tempdir().unwrap();
    let (path, root) = (place.path().join("base.tar"), place.path().join("tree"));
    fs::write(&path, archive(&given())).unwrap();
    unpack(&given(), &root);
    let layout = Layout::of_layers(&place.path().join("layout"), &[archive(&given())]);
    let forms = [archive_base(&path), json!({ "directory": { "path": root } }), layout];
    let times = |time| -> BTreeSet<u64> {
        let bases = forms.iter().map(|base| build_at(place.path(), base, time).base());
        let of_base = |base| -> Vec<u64> {
            let mut archive = tar::Archive::new(File::open(base).unwrap());
            archive.entries().unwrap().map(|entry| entry.unwrap().header().mtime().unwrap()).collect()
        };
        bases.flat_map(of_base).collect()
    };
    assert_eq!(times(GivenTime::None), [TIME].into());
    assert_eq!(times(GivenTime::Definition(1_650_000_000)), [1_650_000_000].into());
    let future = GivenTime::Definition(4_102_444_800);
    let refused = build_at(place.path(), &forms[0], future);
    assert!(refused.code == 2 && refused.told.contains("2100-01-01"), "{}: {}", refused.code, refused.told);
    // The files that are left have owners whose files only this namespace can remove.
    assert!(as_root().args(["rm", "-rf"]).arg(root).status().unwrap().success());
}

#[test]
fn a_directory_is_built_again_when_only_a_mode_changed_and_not_when_nothing_did() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("tree");
    for name in ["usr", "etc"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    let secret = root.join("etc/secret");
    File::create(&secret).unwrap().write_all(b"secret").unwrap();
    let base = json!({ "directory": { "path": root } });
    let mode = |mode| {
        fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).unwrap();
        let path = build(place.path(), &base).base();
        let entries = read(&path);
        (path, entries["./etc/secret"].mode)
    };
    let first = mode(0o644);
    assert_eq!(mode(0o644), first);
    let second = mode(0o600);
    assert_eq!((first.1, second.1), (0o644, 0o600));
    assert_ne!(first.0, second.0);
}
