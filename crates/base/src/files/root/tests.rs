use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;
use testing::privileges::root_runs;

const BOB: Owner = Owner { user: 1001, group: 1001 };
const FILE: Attributes = Attributes { mode: 0o644, owner: None };

/// A directory that stands for `/`, with the home of a user who belongs to nobody else where root runs.
fn tree() -> (tempfile::TempDir, Root) {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    for name in ["etc", "home/bob", "run", "var"] {
        fs::create_dir_all(at(name)).unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(at("home"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at("etc/secret"), "secret").unwrap();
    if crate::files::directory::root_runs() {
        chown(at("home/bob"), Some(BOB.user), Some(BOB.group)).unwrap();
    }
    let homes = vec![UserHome { path: "/home/bob".into(), owner: BOB }];
    let root = Root::open(place.path()).unwrap().with_homes(homes);
    (place, root)
}

fn owner(path: impl AsRef<Path>) -> (u32, u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}

fn error(result: Result<impl fmt::Debug>) -> String {
    format!("{:#}", result.unwrap_err())
}

#[test]
fn a_file_is_written_once_with_its_mode_and_leaves_nothing_beside_it() {
    let (place, root) = tree();
    let script = Attributes { mode: 0o750, owner: None };
    assert!(root.write("/etc/new/tool", b"one", script).unwrap());
    assert!(!root.write("etc/new/tool", b"one", script).unwrap());
    assert!(root.write("etc/new/tool", b"two", script).unwrap());
    assert!(root.write("etc/new/tool", b"two", FILE).unwrap(), "another mode is a change");
    let path = place.path().join("etc/new/tool");
    assert_eq!((fs::read(&path).unwrap(), owner(&path).2), (b"two".to_vec(), 0o644));
    assert_eq!(owner(path.parent().unwrap()).2, 0o755);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn links_that_only_root_can_make_are_followed_below_the_root() {
    let (place, root) = tree();
    symlink("/run", place.path().join("var/run")).unwrap();
    symlink("run/../../../run/lock", place.path().join("var/lock")).unwrap();
    fs::create_dir(place.path().join("run/lock")).unwrap();
    assert!(root.write("/var/run/a/pid", b"1", FILE).unwrap());
    assert!(root.write("/var/lock/b", b"2", FILE).unwrap());
    assert_eq!(fs::read(place.path().join("run/a/pid")).unwrap(), b"1");
    assert_eq!(fs::read(place.path().join("run/lock/b")).unwrap(), b"2");
    assert_eq!(root.make_directory("/var/run/c").unwrap(), Path::new("run/c"));
    assert!(root.remove("/var/run/a/pid").unwrap() && !place.path().join("run/a/pid").exists());
}

#[test]
fn a_link_that_leads_nowhere_or_in_a_circle_is_named() {
    let (place, root) = tree();
    symlink("/gone", place.path().join("var/gone")).unwrap();
    symlink("round", place.path().join("var/round")).unwrap();
    let text = error(root.write("/var/gone/a", b"", FILE));
    assert!(text.contains("/gone, to which a link leads, is missing"), "{text}");
    assert!(!root.remove("/var/gone/a").unwrap());
    let text = error(root.write("/var/round/a", b"", FILE));
    assert!(text.contains("/var/round is one of more than 40 links"), "{text}");
    assert!(!place.path().join("gone").exists());
}

#[test]
fn a_link_in_a_directory_that_others_can_change_is_not_followed() {
    let (place, root) = tree();
    let open = place.path().join("var/tmp");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    symlink("../../etc", open.join("x")).unwrap();
    let text = error(root.write("/var/tmp/x/secret", b"", FILE));
    assert!(
        text.contains("/var/tmp/x is a link in a directory that users other than root can change"),
        "{text}"
    );
    assert!(root.remove("/var/tmp/x/secret").is_err() && root.link("/var/tmp/x/l", Path::new("a")).is_err());
    assert_eq!(fs::read(place.path().join("etc/secret")).unwrap(), b"secret");
}

#[test]
fn a_link_of_a_user_is_not_followed_wherever_it_is() {
    if !root_runs() {
        return;
    }
    let (place, root) = tree();
    for link in ["home/bob/x", "var/x"] {
        symlink("/etc", place.path().join(link)).unwrap();
        lchown(place.path().join(link), Some(BOB.user), Some(BOB.group)).unwrap();
        let text = error(root.write(format!("/{link}/secret"), b"", FILE));
        assert!(text.contains(&format!("/{link} is a link of user 1001, which is not followed")), "{text}");
        assert!(root.remove(format!("{link}/secret")).is_err());
    }
    // One of root's is no better there: the user can have moved it.
    symlink("/etc", place.path().join("home/bob/roots")).unwrap();
    let text = error(root.write("/home/bob/roots/secret", b"", FILE));
    assert!(text.contains("/home/bob/roots is a link in a directory that user 1001 can change"), "{text}");
    assert_eq!(fs::read(place.path().join("etc/secret")).unwrap(), b"secret");
}

#[test]
fn what_is_made_in_a_home_belongs_to_its_user_parents_included() {
    if !root_runs() {
        return;
    }
    let (place, root) = tree();
    let at = |name: &str| place.path().join(name);
    root.write("/home/bob/.config/app/app.conf", b"a", Attributes { mode: 0o600, owner: None }).unwrap();
    assert_eq!(owner(at("home/bob/.config")), (1001, 1001, 0o755));
    assert_eq!(owner(at("home/bob/.config/app")), (1001, 1001, 0o755));
    assert_eq!(owner(at("home/bob/.config/app/app.conf")), (1001, 1001, 0o600));
    let tool = Attributes { mode: 0o4755, owner: Some(Owner::ROOT) };
    root.write("/home/bob/bin/tool", b"a", tool).unwrap();
    assert_eq!(owner(at("home/bob/bin")), (1001, 1001, 0o755), "the directories are the user's all the same");
    assert_eq!(owner(at("home/bob/bin/tool")), (0, 0, 0o4755), "the owner is set before the mode");
    root.write("/home/bobby/x", b"a", FILE).unwrap();
    assert_eq!(owner(at("home/bobby/x")), (0, 0, 0o644), "that is another name");
}

#[test]
fn a_home_that_is_missing_is_made_for_its_user() {
    if !root_runs() {
        return;
    }
    let (place, root) = tree();
    fs::remove_dir(place.path().join("home/bob")).unwrap();
    root.write("/home/bob/x/y", b"a", FILE).unwrap();
    assert_eq!(owner(place.path().join("home")), (0, 0, 0o755));
    assert_eq!(owner(place.path().join("home/bob")), (1001, 1001, 0o700));
    assert_eq!(owner(place.path().join("home/bob/x")), (1001, 1001, 0o755));
}

#[test]
fn directories_of_root_in_a_home_are_used_as_they_are() {
    if !root_runs() {
        return;
    }
    let (place, root) = tree();
    fs::create_dir(place.path().join("home/bob/.config")).unwrap();
    root.write("/home/bob/.config/new/x", b"a", FILE).unwrap();
    assert_eq!(owner(place.path().join("home/bob/.config")), (0, 0, 0o755));
    assert_eq!(owner(place.path().join("home/bob/.config/new")), (1001, 1001, 0o755));
    assert_eq!(owner(place.path().join("home/bob/.config/new/x")), (1001, 1001, 0o644));
}

#[test]
fn what_a_user_may_not_do_is_not_done_for_the_user() {
    if !root_runs() {
        return;
    }
    let (place, root) = tree();
    let other = place.path().join("home/bob/shared");
    fs::create_dir(&other).unwrap();
    chown(&other, Some(1002), Some(1002)).unwrap();
    let text = error(root.write("/home/bob/shared/new/x", b"a", FILE));
    assert!(text.contains("making the directory /home/bob/shared/new: Permission denied"), "{text}");
    assert!(fs::read_dir(&other).unwrap().next().is_none());
}

#[test]
fn what_has_the_name_of_a_file_is_replaced_and_never_written_to_or_waited_for() {
    let (place, root) = tree();
    let at = |name: &str| place.path().join(name);
    let target = at("etc/target");
    mkfifo(&target, Mode::from_bits_truncate(0o644)).unwrap();
    assert!(root.write("/etc/target", b"file", FILE).unwrap());
    assert_eq!(fs::read(&target).unwrap(), b"file");
    fs::remove_file(&target).unwrap();
    fs::hard_link(at("etc/secret"), &target).unwrap();
    assert!(root.write("/etc/target", b"changed", FILE).unwrap());
    fs::remove_file(&target).unwrap();
    symlink("secret", &target).unwrap();
    assert!(root.write("/etc/target", b"secret", FILE).unwrap(), "a link is not the file that it leads to");
    assert!(fs::symlink_metadata(&target).unwrap().is_file());
    assert_eq!((fs::read(at("etc/secret")).unwrap(), owner(at("etc/secret")).2), (b"secret".to_vec(), 0o644));
}

#[test]
fn a_directory_in_the_place_of_a_file_is_left_alone_and_named() {
    let (place, root) = tree();
    fs::create_dir(place.path().join("etc/app.conf")).unwrap();
    let wanted = "/etc/app.conf is a directory: move it away, or choose another path";
    assert_eq!(error(root.write("etc/app.conf", b"a", FILE)), wanted);
    assert_eq!(error(root.remove("etc/app.conf")), wanted);
    assert_eq!(error(root.link("etc/app.conf", Path::new("x"))), wanted);
    assert_eq!(fs::read_dir(place.path().join("etc")).unwrap().count(), 2, "nothing is left over");
    let text = error(root.write("/etc/secret/x", b"a", FILE));
    assert_eq!(text, "/etc/secret is a file, not a directory: move it away, or choose another path");
}

#[test]
fn what_is_removed_is_the_link_and_not_what_it_leads_to() {
    let (place, root) = tree();
    symlink("secret", place.path().join("etc/link")).unwrap();
    assert!(root.remove("/etc/link").unwrap());
    assert!(!root.remove("/etc/link").unwrap() && !root.remove("/etc/none/link").unwrap());
    assert_eq!(fs::read(place.path().join("etc/secret")).unwrap(), b"secret");
}

#[test]
fn a_link_takes_the_place_of_what_was_there() {
    let (place, root) = tree();
    root.write("/etc/units/unit", b"old", FILE).unwrap();
    for target in ["/dev/null", "/nonexistent"] {
        assert!(root.link("/etc/units/unit", Path::new(target)).unwrap());
        assert!(!root.link("/etc/units/unit", Path::new(target)).unwrap());
        assert_eq!(fs::read_link(place.path().join("etc/units/unit")).unwrap(), Path::new(target));
    }
    assert_eq!(fs::read_dir(place.path().join("etc/units")).unwrap().count(), 1);
}

#[test]
fn paths_that_lead_upwards_or_nowhere_are_refused() {
    let (_place, root) = tree();
    for path in ["/etc/../x", "..", "/", "", "."] {
        let text = error(root.write(path, b"", FILE));
        assert!(text.contains("names no file below the root"), "{path}: {text}");
    }
}

#[test]
fn a_lock_is_no_link() {
    let (place, root) = tree();
    root.lock_file("run/nqrust/lock").unwrap();
    assert_eq!(owner(place.path().join("run/nqrust/lock")).2, 0o600);
    symlink("/etc/secret", place.path().join("run/nqrust/other")).unwrap();
    assert!(root.lock_file("run/nqrust/other").is_err());
}
